//! Which GPU each rank has.

use super::{Team, world};
use crate::api::failure::Failure;
use crate::backend::DeviceError;
use crate::config::Experiment;
use crate::config::language::devices::Devices;
use crate::config::language::values::Device;
use crate::train::setup::device::gpus;

/// A team with a rank for each of the GPUs that the configuration names, if it names some; without shards it has as many from now on.
///
/// # Errors
/// There are not so many GPUs, or `team` has another number of ranks; the batch cannot be cut into so many shards.
pub fn spread(experiment: &mut Experiment, team: Team, dry: bool) -> Result<Team, Failure> {
    let Some(devices) = &experiment.devices else { return Ok(team) };
    let count = numbers(devices)?.len();
    let Team::Threads(asked) = team else {
        return Err(Failure::Usage(
            "`devices` has one process train on several GPUs, and this is one of several processes\nhelp: `--device cuda` instead: each \
             process takes the GPU of its local rank"
                .into(),
        ));
    };
    if asked > 1 && asked != count {
        return Err(Failure::Usage(format!(
            "`devices` has a rank for each of {count} GPUs, and {asked} ranks are asked for\nhelp: without `--ranks` there are as many"
        )));
    }
    if dry && count > 1 {
        return Err(Failure::Usage("a dry run is that of one rank\nhelp: `--device cuda` has it on one GPU".into()));
    }
    experiment.set_devices(count);
    let (batch, shards) = (experiment.data.loading.batch_size, experiment.shards());
    if !experiment.data.auto_batch_size && !batch.is_multiple_of(shards) {
        return Err(Failure::Usage(format!(
            "a batch of {batch} samples cannot be cut into {shards} equal shards, one for each GPU\nhelp: take a `batch_size` that {shards} \
             divides, or name other `devices`"
        )));
    }
    if experiment.data.auto_batch_size && count > 1 {
        return Err(Failure::Usage(
            "`batch_size = \"auto\"` does not go with several GPUs\nhelp: give a number, of all GPUs together; `runner check` shows the memory"
                .into(),
        ));
    }
    Ok(Team::Threads(count))
}

/// The numbers of GPUs that are named, all of which there are.
fn numbers(devices: &Devices) -> Result<Vec<usize>, Failure> {
    let count = gpus()?;
    let numbers = match devices {
        Devices::All => (0..count).collect(),
        Devices::Numbers(numbers) => numbers.clone(),
    };
    match numbers.iter().find(|number| **number >= count) {
        Some(missing) => Err(DeviceError(format!(
            "`devices` names GPU {missing}, and there {}\nhelp: `runner devices` lists them; `devices = \"all\"` takes all",
            there_are(count)
        ))
        .into()),
        None => Ok(numbers),
    }
}

fn there_are(count: usize) -> String {
    match count {
        1 => "is one, number 0".into(),
        _ => format!("are {count}, numbers 0 to {}", count - 1),
    }
}

/// Those of ranks that are threads, in their order.
///
/// # Errors
/// There are not enough, or the configuration names one for all.
pub fn of_threads(experiment: &Experiment, ranks: usize) -> Result<Vec<usize>, Failure> {
    if let Some(devices) = &experiment.devices {
        return numbers(devices);
    }
    one_for_all(experiment, ranks)?;
    let count = gpus()?;
    if count < ranks {
        return Err(DeviceError(format!(
            "{ranks} ranks need a GPU each, and there {}\nhelp: take fewer ranks, or `--device cpu`",
            there_are(count)
        ))
        .into());
    }
    Ok((0..ranks).collect())
}

/// That of this process, as one of several: of those that it sees, the one with the number of its rank on this machine.
///
/// # Errors
/// There are not enough, or the configuration names one for all.
pub fn of_process(device: Device) -> Result<usize, Failure> {
    let here = world::ranks_here();
    if let Device::Cuda(number @ 1..) = device {
        return match here {
            Some(1) => Ok(number),
            _ => Err(named(number)),
        };
    }
    let count = gpus()?;
    if count == 1 {
        // The launcher of the processes has given each its own.
        return Ok(0);
    }
    let local = match (world::local_rank()?, here) {
        (Some(local), _) => local,
        (None, Some(1)) => 0,
        (None, _) => {
            return Err(Failure::Usage(format!(
                "{count} GPUs are seen, and it is not said which rank of this machine this is\nhelp: set `LOCAL_RANK`, from 0 on, or show \
                 each process one GPU by `CUDA_VISIBLE_DEVICES`"
            )));
        }
    };
    match local < count {
        true => Ok(local),
        false => Err(DeviceError(format!(
            "this is rank {local} of this machine, counted from 0, and there {}\nhelp: start fewer ranks on it, or `--device cpu`",
            there_are(count)
        ))
        .into()),
    }
}

fn one_for_all(experiment: &Experiment, ranks: usize) -> Result<(), Failure> {
    match experiment.device {
        Device::Cuda(number @ 1..) if ranks > 1 => Err(named(number)),
        _ => Ok(()),
    }
}

fn named(number: usize) -> Failure {
    Failure::Usage(format!(
        "`device = \"cuda:{number}\"` names one GPU, and several ranks need one each\nhelp: `device = \"cuda\"`, or their numbers in \
         `devices`, as in `devices = [0, {number}]`"
    ))
}
