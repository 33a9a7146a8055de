//! `runner devices`.

use super::args::OutputArgs;
use crate::api::failure::Failure;
use crate::backend::cpu::cpu_info;
use crate::backend::cuda::driver::{self, Context, DeviceInfo, Unavailable};
use crate::backend::cuda::modules::{cubin, ptx};
use crate::backend::cuda::nvidia;
use crate::backend::cuda::nvidia::installed::{Found, Library, Missing, open};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Lists the devices.
pub(super) fn run(output: OutputArgs) -> Result<ExitCode, Failure> {
    let all = Devices::ask();
    if output.json {
        super::print_json(&all.json())?;
    } else {
        super::print(&all.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What there is to compute on.
pub(super) struct Devices {
    cuda: Cuda,
    libraries: Vec<(Library, Result<Found, Missing>)>,
}

impl Devices {
    /// Looks at this machine.
    pub(super) fn ask() -> Devices {
        Devices { cuda: Cuda::ask(), libraries: Library::ALL.into_iter().map(|l| (l, open(l))).collect() }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let mut devices = vec![cpu_json()];
        devices.extend(self.cuda.gpus.iter().map(Gpu::json));
        let libraries: Vec<Value> = self.libraries.iter().map(|(l, found)| library_json(*l, found)).collect();
        json!({ "devices": devices, "cuda": self.cuda.json(), "libraries": libraries })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = cpu_text();
        text += &self.cuda.text();
        text.push_str("libraries\n");
        for (library, found) in &self.libraries {
            let _ = writeln!(text, "  {:<9} {}", library.name(), library_text(*library, found));
        }
        text
    }

    /// The numbers of the GPUs that can be computed on.
    pub(super) fn gpus(&self) -> Vec<usize> {
        self.cuda.gpus.iter().filter(|gpu| gpu.free.is_ok()).map(|gpu| gpu.info.ordinal).collect()
    }
}

fn bytes(b: Option<u64>) -> String {
    b.map_or_else(|| "unknown".into(), |b| super::human_bytes(b as usize))
}

fn cpu_json() -> Value {
    let cpu = cpu_info();
    json!({
        "name": "cpu",
        "model": cpu.model,
        "physical_cores": cpu.physical_cores,
        "logical_cores": cpu.logical_cores,
        "simd": cpu.simd,
        "bf16": cpu.bf16,
        "memory_total": cpu.memory_total,
        "memory_free": cpu.memory_free,
    })
}

fn cpu_text() -> String {
    let cpu = cpu_info();
    let cores = match cpu.physical_cores {
        Some(p) if p != cpu.logical_cores => format!("{} ({p} physical)", cpu.logical_cores),
        _ => cpu.logical_cores.to_string(),
    };
    let bf16 = cpu.bf16.map_or(String::new(), |unit| format!("  bf16    {unit}\n"));
    format!(
        "cpu\n  model   {}\n  cores   {cores}\n  simd    {}\n{bf16}  memory  {} free of {}\n",
        cpu.model.as_deref().unwrap_or("unknown"),
        cpu.simd.join(", "),
        bytes(cpu.memory_free),
        bytes(cpu.memory_total),
    )
}

/// A GPU as the driver shows it.
struct Gpu {
    info: DeviceInfo,
    /// Bytes that are free, or why it cannot be computed on.
    free: Result<usize, String>,
}

impl Gpu {
    fn ask(ordinal: usize) -> Result<Gpu, String> {
        let info = DeviceInfo::ask(ordinal).map_err(|e| e.to_string())?;
        let free = Context::open(ordinal).and_then(|context| Ok(context.memory()?.0));
        Ok(Gpu { info, free: free.map_err(|e| first_line(&format!("{e:#}"))) })
    }

    fn json(&self) -> Value {
        let mut out = json!({
            "name": format!("cuda:{}", self.info.ordinal),
            "model": self.info.name,
            "compute_capability": self.info.capability_text(),
            "multiprocessors": self.info.multiprocessors,
            "memory_total": self.info.total_bytes,
            "memory_free": self.free.as_ref().ok(),
            "kernels": cubin::architecture(self.info.capability).map(|made_for| format!("sm_{made_for}")),
        });
        if let Err(why) = &self.free {
            out["problem"] = json!(why);
        }
        out
    }

    fn text(&self) -> String {
        let i = &self.info;
        let mut text = format!("cuda:{}\n  model               {}\n", i.ordinal, i.name);
        let _ = writeln!(text, "  compute capability  {}", i.capability_text());
        let _ = writeln!(text, "  multiprocessors     {}", i.multiprocessors);
        let _ = match cubin::architecture(i.capability) {
            Some(made_for) => writeln!(text, "  kernels             machine code for sm_{made_for}"),
            None => writeln!(text, "  kernels             PTX, which the driver compiles"),
        };
        let total = super::human_bytes(i.total_bytes);
        let _ = match &self.free {
            Ok(free) => writeln!(text, "  memory              {} free of {total}", super::human_bytes(*free)),
            Err(why) => writeln!(text, "  memory              {total}\n  cannot be used      {why}"),
        };
        text
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What the driver says.
struct Cuda {
    /// Its CUDA version, or why there is nothing to compute on.
    driver: Result<i32, Unavailable>,
    gpus: Vec<Gpu>,
    /// GPUs that are there, but whose properties cannot be read.
    problems: Vec<String>,
}

impl Cuda {
    fn ask() -> Cuda {
        let (driver, count) = match driver::start() {
            Ok((driver, count)) => (Ok(driver), count),
            Err(why) => (Err(why), 0),
        };
        let (mut gpus, mut problems) = (Vec::new(), Vec::new());
        for ordinal in 0..count {
            match Gpu::ask(ordinal) {
                Ok(gpu) => gpus.push(gpu),
                Err(why) => problems.push(format!("cuda:{ordinal}: {why}")),
            }
        }
        Cuda { driver, gpus, problems }
    }

    /// The number of the device that `"cuda"` and `"auto"` stand for, if there is any to compute on.
    fn current(&self) -> Option<usize> {
        self.gpus.iter().find(|gpu| gpu.info.ordinal == 0 && gpu.free.is_ok()).map(|gpu| gpu.info.ordinal)
    }

    fn json(&self) -> Value {
        let kernels: Vec<Value> =
            kernels().into_iter().map(|(isa, target)| json!({ "ptx": isa, "target": target })).collect();
        let mut out = json!({
            "available": self.current().is_some(),
            "count": self.gpus.len(),
            "current": self.current(),
            "driver_cuda": self.driver.as_ref().ok().map(|v| driver::version(*v)),
            "driver_release": driver::release(),
            "kernels": kernels,
            "machine_code": machine_code().collect::<Vec<_>>(),
        });
        if let Err(why) = &self.driver {
            out["reason"] = json!(why.to_string());
            out["help"] = json!(why.help());
        }
        if !self.problems.is_empty() {
            out["problems"] = json!(self.problems);
        }
        out
    }

    fn text(&self) -> String {
        let mut text = String::from("cuda\n");
        let release = driver::release().map_or(String::new(), |r| format!(", release {r}"));
        match &self.driver {
            Ok(v) => {
                let devices = match (self.gpus.len(), self.current()) {
                    (n, Some(current)) => {
                        format!("{n}, of which cuda:{current} is the one that `cuda` and `auto` take")
                    }
                    (n, None) => format!("{n}; none that `cuda` and `auto` can take"),
                };
                let _ = writeln!(text, "  devices  {devices}");
                let _ = writeln!(text, "  driver   CUDA {}{release}", driver::version(*v));
            }
            Err(why) => {
                let _ = writeln!(text, "  not available: {why}{release}\n  help: {}", why.help());
            }
        }
        let list: Vec<String> = kernels().into_iter().map(|(isa, target)| format!("{isa} for {target}")).collect();
        let codes: Vec<String> = machine_code().collect();
        let _ = writeln!(
            text,
            "  kernels  machine code for {}; PTX {}; in this program",
            codes.join(", "),
            list.join(", ")
        );
        for problem in &self.problems {
            let _ = writeln!(text, "  problem  {problem}");
        }
        for gpu in &self.gpus {
            text += &gpu.text();
        }
        text
    }
}

/// PTX version and target of the two sets of kernels.
fn kernels() -> Vec<(String, String)> {
    [75, 80].into_iter().filter_map(ptx::version).collect()
}

/// The architectures whose machine code travels in this program.
fn machine_code() -> impl Iterator<Item = String> {
    cubin::FAMILIES.iter().flat_map(|family| family.iter()).map(|made_for| format!("sm_{made_for}"))
}

fn library_json(library: Library, found: &Result<Found, Missing>) -> Value {
    let usable = found.as_ref().ok().map(|found| nvidia::usable(library, &found.path));
    let mut out = json!({
        "name": library.name(),
        "path": found.as_ref().ok().map(|f| f.path.display().to_string()),
        "version": found.as_ref().ok().and_then(|f| f.version.clone()),
        "used": matches!(usable, Some(Ok(()))),
    });
    if let Some(Err(why)) = usable {
        out["unused"] = json!(why);
    }
    if let Err(missing) = found {
        out["missing"] = json!(missing.to_string());
        out["cost"] = json!(library.cost());
    }
    out
}

fn library_text(library: Library, found: &Result<Found, Missing>) -> String {
    match found {
        Ok(found) => {
            let version = found.version.as_deref().unwrap_or("of unknown version");
            let unused = nvidia::usable(library, &found.path).err();
            let unused = unused.map_or(String::new(), |why| format!(" (not used: {why})"));
            format!("{version} in {}{unused}", found.path.display())
        }
        Err(missing) => format!("{missing}: {}", library.cost()),
    }
}
