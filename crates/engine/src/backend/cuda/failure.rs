//! Errors of failures on a GPU: too little memory, a node that is known, a node that is not.

use super::driver::MEMORY_HELP;
use super::driver::memory::LOCKING;
use super::modules::driver_error;
use super::nvidia::is_out_of_memory;
use super::settings::SYNC;
use crate::backend::DeviceError;
use anyhow::{Error, anyhow};

/// Makes the errors of failures on one device.
#[derive(Debug, Clone)]
pub struct Explainer {
    /// The device, for people.
    pub device: String,
    /// Every piece of work is waited for, so that an error is that of the piece that was waited for.
    pub sync: bool,
}

impl Explainer {
    /// The error as the user sees it. One that has that form already stays as it is.
    pub fn explain(&self, error: Error) -> Error {
        if error.is::<DeviceError>() {
            return error;
        }
        if is_out_of_memory(&error) {
            let of_host = driver_error(&error).is_some_and(|e| e.doing == LOCKING);
            return if of_host { host_full(&self.device, &error) } else { full(&self.device, &error) }.into();
        }
        if self.sync || !is_earlier(&error) {
            return error;
        }
        let (what, _) = parts(&error);
        anyhow!(
            "{what}\na node of a program that was enqueued before has failed: the driver does not say which\nhelp: {SYNC}=1 \
             runs node by node, and names the one that fails"
        )
    }

    /// The error of a node, which `place` names in a few words and `details` line by line.
    pub fn explain_at(&self, place: &str, details: &str, error: Error) -> Error {
        if is_out_of_memory(&error) {
            return self.explain(error.context(place.to_owned()));
        }
        if !self.sync && is_earlier(&error) {
            return self.explain(error);
        }
        let (what, help) = parts(&error);
        let help = help.map_or(String::new(), |help| format!("\nhelp: {help}"));
        anyhow!("{place}: {what}{details}{help}")
    }
}

/// The error for a program that does not fit into a device's memory.
fn full(device: &str, error: &Error) -> DeviceError {
    let what = parts(error).0;
    DeviceError(format!(
        "not enough memory on {device}: {what}\nhelp: take a smaller batch (`batch_size` or `eval_batch_size` in [data]) or a \
         smaller model, {MEMORY_HELP}"
    ))
}

/// The error for a host with too little memory that can be locked.
fn host_full(device: &str, error: &Error) -> DeviceError {
    let what = parts(error).0;
    DeviceError(format!(
        "not enough memory of the host that {device} can read: {what}\nhelp: take a smaller `batch_size` or `prefetch` in \
         [data], or raise the limit of locked memory (`ulimit -l`)"
    ))
}

/// What has happened, and what can be done.
fn parts(error: &Error) -> (String, Option<String>) {
    let text = format!("{error:#}");
    match text.split_once("\nhelp: ") {
        Some((what, help)) => (what.to_owned(), Some(help.to_owned())),
        None => (text, None),
    }
}

fn is_earlier(error: &Error) -> bool {
    driver_error(error).is_some_and(|e| e.earlier)
}

#[cfg(test)]
mod tests {
    use super::super::driver::{Code, CudaError};
    use super::*;
    use anyhow::Context;

    fn failed(code: u32) -> Error {
        Error::from(CudaError::new("trying", Code(code)))
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_of_the_device_however_deep_it_lies() {
        let explainer = Explainer { device: "cuda:0".into(), sync: false };
        let explained = explainer.explain(failed(2).context("in a node").context("in a program"));
        let text = explained.downcast_ref::<DeviceError>().unwrap().to_string();
        assert!(text.starts_with("not enough memory on cuda:0: in a program: in a node: the GPU failed"), "{text}");
        assert!(text.contains("\nhelp: take a smaller batch"), "{text}");
        let host = explainer.explain(CudaError::new(LOCKING, Code(2)).into()).to_string();
        assert!(host.starts_with("not enough memory of the host") && host.contains("ulimit -l"), "{host}");
        let again = explainer.explain(explained);
        assert_eq!(again.downcast_ref::<DeviceError>().unwrap().to_string(), text);
        let at_node = explainer.explain_at("node 1", "", failed(2)).downcast::<DeviceError>().unwrap().to_string();
        assert!(at_node.starts_with("not enough memory on cuda:0: node 1: the GPU failed"), "{at_node}");
    }

    #[test]
    fn earlier_failures_are_not_blamed_on_the_node_at_hand() {
        let explainer = Explainer { device: "cuda:0".into(), sync: false };
        for error in [explainer.explain(failed(700)), explainer.explain_at("node 1", "", failed(719))] {
            let text = format!("{error:#}");
            assert!(text.contains("RUNNER_CUDA_SYNC=1") && !text.contains("node 1"), "{text}");
        }
        let synced = Explainer { sync: true, ..explainer.clone() };
        let text = format!("{:#}", synced.explain(synced.explain_at("node 1", "\n  details", failed(700))));
        assert!(text.starts_with("node 1: the GPU failed") && text.ends_with(")\n  details"), "{text}");
        // An error of the call itself is the node's, waited for or not.
        assert!(format!("{:#}", explainer.explain_at("node 1", "", failed(1))).starts_with("node 1: "));
    }

    #[test]
    fn help_stays_at_the_end() {
        let explainer = Explainer { device: "cuda:0".into(), sync: false };
        let with_help = Err::<(), _>(anyhow!("a library failed\nhelp: do without")).context("here").unwrap_err();
        let text = format!("{:#}", explainer.explain_at("node 1", "\n  details", with_help));
        assert_eq!(text, "node 1: here: a library failed\n  details\nhelp: do without");
    }
}
