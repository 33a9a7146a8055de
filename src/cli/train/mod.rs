//! `runner train`: a new run, or one that goes on.

mod asked;
mod dry_run;
mod interrupt;
mod members;
mod place;

use super::args::TrainArgs;
use crate::api::failure::Failure;
use crate::api::train::{Asked, Interrupt, Request, Team, ranks, start};
use crate::collective::inbox::Failed;
use crate::train::run::Outcome;
use crate::train::run::report::Verbosity;
use crate::train::run::unusable::Unusable;
use anyhow::anyhow;
pub(super) use interrupt::{INTERRUPTED, on_interrupt};
use interrupt::{asked_to_stop, await_interrupt, is_launched, watch, watch_stdin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Trains, as one of several processes if this is one.
pub(super) fn run(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let Some(found) = ranks::of_environment()? else { return run_on(args, Team::Threads(1)) };
    let _ = watch(found.rank);
    if args.dry_run {
        return Err(Failure::Usage("a dry run is that of one rank".into()));
    }
    let rank = found.rank;
    let named = |failure: Failure| match rank {
        0 => failure,
        _ => Failure::Other(anyhow!("rank {rank}: {}", failure.in_words())),
    };
    let member = match ranks::connect(&found) {
        Ok(member) => member,
        Err(failure) => {
            await_interrupt();
            return if is_for_another(rank, &failure) { Ok(ExitCode::FAILURE) } else { Err(named(failure)) };
        }
    };
    // All have met. `launch` may be killed, and then leaves the folder that it has made for that.
    if rank == 0
        && is_launched()
        && let Some(file) = std::env::var_os(ranks::RENDEZVOUS)
    {
        let _ = Path::new(&file).parent().map(std::fs::remove_dir);
    }
    let outcome = ranks::agree(member.as_ref()).and_then(|agreed| match rank {
        0 => run_on(args, Team::Process(member.clone(), agreed)),
        _ => {
            ranks::follow(&member, agreed, args.threads, args.pause_after, &interrupt(args)).map(|()| ExitCode::SUCCESS)
        }
    });
    let lost = member.check().err().map(Failure::from);
    if outcome.is_err() && lost.is_some() {
        await_interrupt();
    }
    let outcome = match outcome {
        Err(failure) if is_for_another(rank, lost.as_ref().unwrap_or(&failure)) => Ok(ExitCode::FAILURE),
        Err(failure) => {
            member.fail(&failure.in_words());
            Err(failure)
        }
        done => done,
    };
    // The failure is reported before this rank leaves: `mpirun` ends all of them when one has ended.
    let code = outcome.unwrap_or_else(|failure| named(failure).report(args.output.json));
    drop(member);
    Ok(code)
}

/// Whether another rank reports what has gone wrong.
fn is_for_another(rank: usize, failure: &Failure) -> bool {
    let Failure::Other(error) = failure else { return false };
    let Some(failed) = error.downcast_ref::<Failed>() else { return rank > 0 && error.is::<Unusable>() };
    match rank {
        0 => false,
        // The first rank cannot say that nothing is heard of it.
        1 => !(failed.rank == 0 && failed.is_silent()),
        _ => true,
    }
}

/// Trains, alone or as the first of several ranks.
pub(super) fn run_on(args: &TrainArgs, team: Team) -> Result<ExitCode, Failure> {
    // Where there is no room for that, the system ends the process, and a run that gets to its loop says so.
    let _ = watch(0);
    if let Some(wish) = members::of(args)? {
        return members::run(args, &team, wish);
    }
    let request = request(args, asked::of(args)?, team);
    if args.dry_run {
        return dry_run::run(&request, args);
    }
    Ok(match start(&request)?.outcome {
        Some(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

/// The run that the command line asks for.
fn request(args: &TrainArgs, run: Asked, team: Team) -> Request {
    Request {
        run,
        sets: args.overrides.sets(),
        without: args.passes.without.clone(),
        out: args.out.clone(),
        // In the place of a run to go on with there is one that has saved nothing, or it would be gone on with.
        replace: args.force || args.resume.iter().flatten().any(|from| from.as_os_str() == asked::AUTO),
        allow_download: args.allow_download,
        threads: args.threads,
        team,
        pause_after: args.pause_after,
        verbosity: verbosity(args),
        quiet: args.quiet,
        plot: args.plot,
        member: None,
        listener: None,
        interrupt: interrupt(args),
    }
}

/// What the run is asked to stop by, watched from the moment on at which its loop begins: before, Ctrl-C ends the process at once, with a word.
fn interrupt(args: &TrainArgs) -> Interrupt {
    let watches_stdin = args.watch_stdin;
    Arc::new(move |speaks| {
        if !speaks {
            return asked_to_stop(|| ());
        }
        let flag = on_interrupt()?;
        if watches_stdin {
            watch_stdin(flag.clone())?;
        }
        Ok(flag)
    })
}

fn verbosity(args: &TrainArgs) -> Verbosity {
    match (args.output.json, args.quiet) {
        (true, _) if args.dry_run => Verbosity::Quiet,
        (true, _) => Verbosity::Json,
        (false, true) => Verbosity::Quiet,
        (false, false) => Verbosity::Normal,
    }
}
