//! A receiver of messages instead of the terminal: a program that calls this one as a library.

use super::Stream;
use serde_json::Value;
use std::cell::RefCell;
use std::sync::Arc;

/// A message or a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// A line or a few for people: what would go to standard error, or as text to standard output. A warning begins with `warning: `.
    Said(&'a str),
    /// A value for programs: of a run each line of its `metrics.jsonl`, as it is written.
    Record(&'a Value),
}

/// Gets the messages. The thread that has a message calls it.
pub type Listener = Arc<dyn Fn(Event) + Send + Sync>;

thread_local! {
    /// Who listens to this thread.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Does `work` with all messages of this thread sent to `listener`: nothing goes to the two streams, and no bar is drawn. With `None` the thread has no
/// listener meanwhile.
pub fn heard_by<T>(listener: Option<Listener>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also after a panic.
    struct Before(Option<Listener>);
    impl Drop for Before {
        fn drop(&mut self) {
            LISTENER.set(self.0.take());
        }
    }
    let _before = Before(LISTENER.replace(listener));
    work()
}

/// Who listens to this thread, to be handed to one that works for it.
pub fn listener() -> Option<Listener> {
    LISTENER.with_borrow(Clone::clone)
}

/// Sends to this thread's listener; false if there is none.
pub(super) fn send(event: Event) -> bool {
    // It may say something itself.
    listener().is_some_and(|listener| {
        heard_by(None, || listener(event));
        true
    })
}

/// Whether what this thread writes to `stream` may reach a terminal.
pub(super) fn reaches_terminal(stream: Stream) -> bool {
    listener().is_none() && stream.is_terminal()
}

#[cfg(test)]
mod tests {
    use super::super::{Bar, print_json, say};
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_listener_hears_what_its_thread_says() {
        let events = Arc::new(Mutex::new(Vec::new()));
        let into = events.clone();
        let listener: Listener = Arc::new(move |event| {
            into.lock().unwrap().push(match event {
                Event::Said(text) => text.to_owned(),
                Event::Record(value) => value.to_string(),
            });
        });
        let got = heard_by(Some(listener), || {
            say("one\u{1b}[2J");
            print_json(&serde_json::json!({ "two": 2 })).unwrap();
            assert!(Bar::new("bar", 1, 0).is_none());
            // Another thread is not listened to unless it is handed on.
            let handed = super::listener();
            std::thread::spawn(move || heard_by(handed, || say("three"))).join().unwrap();
            4
        });
        assert_eq!((got, listener_is_gone()), (4, true));
        assert_eq!(*events.lock().unwrap(), ["one\\x1b[2J", r#"{"two":2}"#, "three"]);
    }

    fn listener_is_gone() -> bool {
        listener().is_none()
    }
}
