//! What `train.recompute` saves, and what it costs.

use super::human_bytes;
use crate::api::failure::Failure;
use crate::api::model::build_run;
use crate::backend::Backend;
use crate::config::Loaded;
use crate::config::language::sections::Recompute;
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::train::setup::programs::{Kind, Programs};
use crate::train::setup::recompute::flops;
use serde_json::{Value, json};

/// The plan beside that of the same run which computes nothing again.
pub struct Gain {
    /// Bytes of the device that both need.
    bytes: [usize; 2],
    /// Floating-point operations of a training step of both.
    flops: [u64; 2],
}

impl Gain {
    /// What is gained with these programs; `None` where nothing is to be computed again.
    ///
    /// # Errors
    /// As those of building programs.
    pub fn of(
        loaded: &Loaded,
        data: &DataSpec,
        backend: &dyn Backend,
        passes: &PassOptions,
        programs: &Programs,
    ) -> Result<Option<Gain>, Failure> {
        if loaded.experiment.train.recompute == Recompute::Nothing {
            return Ok(None);
        }
        let mut passes = passes.clone();
        passes.without.push("rematerialize".to_string());
        let without = build_run(loaded, data, backend, &passes, &[])?;
        let bytes = [programs, &without].map(|programs| programs.plan.device_bytes());
        let flops = [programs, &without].map(|programs| {
            let step = programs.kinds.iter().position(|(kind, _)| *kind == Kind::Train);
            step.map_or(0, |step| flops(&programs.plan.programs[step]))
        });
        Ok(Some(Gain { bytes, flops }))
    }

    /// As a line.
    pub fn as_text(&self) -> String {
        let Gain { bytes: [bytes, without], flops: [flops, before] } = self;
        if bytes >= without {
            return "`recompute` saves nothing here: what is kept for the backward pass is not what takes the memory"
                .into();
        }
        let saved = human_bytes(without - bytes);
        let more = 100.0 * (*flops as f64 / (*before).max(1) as f64 - 1.0);
        format!(
            "`recompute` saves {saved} of the {} that the steps take, for {more:.0} % more FLOPs in a training step",
            human_bytes(*without)
        )
    }

    /// As JSON.
    pub fn as_json(&self) -> Value {
        let Gain { bytes: [bytes, without], flops: [flops, before] } = self;
        json!({ "saved": without.saturating_sub(*bytes), "flops": flops, "flops_without": before })
    }
}
