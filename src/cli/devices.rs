//! `runner devices`.

use super::args::OutputArgs;
use super::failure::Failure;
use crate::backend::cpu::cpu_info;
use serde_json::json;
use std::process::ExitCode;

/// Lists the devices.
pub(super) fn run(output: OutputArgs) -> Result<ExitCode, Failure> {
    let cpu = cpu_info();
    if output.json {
        super::print_json(&json!({
            "devices": [{
                "name": "cpu",
                "model": cpu.model,
                "physical_cores": cpu.physical_cores,
                "logical_cores": cpu.logical_cores,
                "simd": cpu.simd,
                "memory_total": cpu.memory_total,
                "memory_free": cpu.memory_free,
            }],
            "cuda": { "available": false, "count": 0 },
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let unknown = || "unknown".to_string();
    let bytes = |b: Option<u64>| b.map_or_else(unknown, |b| super::human_bytes(b as usize));
    let cores = match cpu.physical_cores {
        Some(p) if p != cpu.logical_cores => format!("{} ({p} physical)", cpu.logical_cores),
        _ => cpu.logical_cores.to_string(),
    };
    super::print(&format!(
        "cpu\n  model   {}\n  cores   {cores}\n  simd    {}\n  memory  {} free of {}\ncuda\n  not available: this version of runner trains on the CPU",
        cpu.model.clone().unwrap_or_else(unknown),
        cpu.simd.join(", "),
        bytes(cpu.memory_free),
        bytes(cpu.memory_total),
    ))?;
    Ok(ExitCode::SUCCESS)
}
