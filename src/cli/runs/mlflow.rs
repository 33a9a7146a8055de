//! Runs on their way to an MLflow server, through its REST interface (version 2.0). What a run has written down is sent after the fact:
//! a server that does not answer holds no training up, and a run that is sent again gets what is new.

use crate::runs::lines::{Line, within};
use crate::runs::{Run, State};
use crate::terminal::masked;
use crate::train::files::folder::file;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ureq::http::header::AUTHORIZATION;

/// Points, and settings, of one request: what MLflow takes at most.
const MOST_METRICS: usize = 1000;
const MOST_PARAMS: usize = 100;
/// Characters of a setting's value that every version takes.
const MOST_OF_A_VALUE: usize = 500;
/// Letters and digits of what a server calls a run.
const MOST_OF_A_NUMBER: usize = 100;
/// The tag by which a run is found again.
const FOLDER: &str = "runner.folder";
/// When it was begun: another one may have taken its folder.
const BEGUN: &str = "runner.begun";

/// A server.
pub struct Server {
    url: String,
    token: Option<String>,
    agent: ureq::Agent,
}

impl Server {
    /// The server at an address. `MLFLOW_TRACKING_TOKEN` is sent to it.
    pub fn at(url: &str) -> Server {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_global(Some(Duration::from_secs(120)));
        // A proxy cannot reach this machine's own servers.
        if url.contains("://127.0.0.1") || url.contains("://localhost") {
            config = config.proxy(None);
        }
        let token = std::env::var("MLFLOW_TRACKING_TOKEN").ok().filter(|token| !token.is_empty());
        Server { url: url.trim_end_matches('/').to_owned(), token, agent: config.build().new_agent() }
    }

    /// Sends a run; its number there.
    ///
    /// # Errors
    /// The server does not answer, or refuses something.
    pub fn send(&self, run: &Run) -> Result<String> {
        let folder = run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
        let above = folder.parent().and_then(|parent| parent.file_name()).map(|name| name.to_string_lossy());
        let experiment = self.experiment(above.as_deref().unwrap_or("runner"))?;
        let begun = begun(run);
        let known = self.known(&experiment, &folder.to_string_lossy(), begun)?;
        let id = match known {
            Some(id) => id,
            None => {
                let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let made = self.ask(
                    "runs/create",
                    &json!({
                        "experiment_id": experiment,
                        "start_time": begun,
                        "run_name": format!("{}/{name}", above.as_deref().unwrap_or_default()),
                        "tags": [
                            { "key": FOLDER, "value": folder.to_string_lossy() },
                            { "key": BEGUN, "value": begun.to_string() },
                            { "key": "mlflow.source.name", "value": "runner" },
                        ],
                    }),
                )?;
                let id = number(&made, "/run/info/run_id")?;
                for params in params(run).chunks(MOST_PARAMS) {
                    self.ask("runs/log-batch", &json!({ "run_id": id, "params": params }))?;
                }
                id
            }
        };
        // What is there already is not taken twice.
        for metrics in points(run, begun).chunks(MOST_METRICS) {
            self.ask("runs/log-batch", &json!({ "run_id": id, "metrics": metrics }))?;
        }
        let status = match run.state {
            State::Running => "RUNNING",
            State::Finished => "FINISHED",
            State::Stopped => "KILLED",
            State::Failed => "FAILED",
        };
        let mut update = json!({ "run_id": id, "status": status });
        if run.state != State::Running {
            update["end_time"] = milliseconds(run.modified.unwrap_or(UNIX_EPOCH)).into();
        }
        self.ask("runs/update", &update)?;
        Ok(id)
    }

    /// The number of an experiment, which is made where there is none of this name.
    fn experiment(&self, name: &str) -> Result<String> {
        let found = self.ask(
            "experiments/search",
            &json!({ "max_results": 1, "filter": format!("name = '{}'", name.replace('\'', "")) }),
        )?;
        let at = "/experiments/0/experiment_id";
        match found.pointer(at) {
            Some(_) => number(&found, at),
            None => {
                number(&self.ask("experiments/create", &json!({ "name": name.replace('\'', "") }))?, "/experiment_id")
            }
        }
    }

    /// The number of a run of this folder that was sent before.
    fn known(&self, experiment: &str, folder: &str, begun: u64) -> Result<Option<String>> {
        // A quote cannot be written in a condition.
        let filter = match folder.contains('\'') {
            true => format!("tags.`{BEGUN}` = '{begun}'"),
            false => format!("tags.`{BEGUN}` = '{begun}' and tags.`{FOLDER}` = '{folder}'"),
        };
        let found =
            self.ask("runs/search", &json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 }))?;
        let at = "/runs/0/info/run_id";
        found.pointer(at).map(|_| number(&found, at)).transpose()
    }

    fn ask(&self, what: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/api/2.0/mlflow/{what}", self.url);
        let cannot = || masked(&format!("MLflow at {}: {what}", self.url));
        let mut request = self.agent.post(&url).header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut answer = request.send(body.to_string()).with_context(cannot)?;
        let said = answer.body_mut().read_to_string().with_context(cannot)?;
        if !answer.status().is_success() {
            let message = serde_json::from_str::<Value>(&said).ok();
            let message = message.as_ref().and_then(|said| said["message"].as_str()).unwrap_or_default();
            let message: String = message.lines().next().unwrap_or_default().chars().take(MOST_OF_A_VALUE).collect();
            bail!("{}: answered {} {message}", cannot(), answer.status());
        }
        serde_json::from_str(&said).map_err(|_| anyhow!("{}: its answer is no JSON: is it an MLflow server?", cannot()))
    }
}

/// The id of a run or an experiment in a server's answer: letters, digits, `-`, `_` and `.` alone, as it is printed and sent back.
fn number(answer: &Value, at: &str) -> Result<String> {
    let found = answer.pointer(at).and_then(Value::as_str);
    let found = found.with_context(|| format!("MLflow's answer has no `{at}`"))?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    ensure!(
        (1..=MOST_OF_A_NUMBER).contains(&found.len()) && found.chars().all(is_name),
        "MLflow's answer has no number of a run or an experiment at `{at}`: is it an MLflow server?"
    );
    Ok(found.to_owned())
}

/// When a run was begun, in milliseconds since 1970: its metrics' file is made then, and kept when it is resumed.
fn begun(run: &Run) -> u64 {
    let made = fs::metadata(run.path.join(file::METRICS)).and_then(|about| about.created()).ok();
    let since = || run.modified?.checked_sub(Duration::try_from_secs_f64(run.seconds.max(0.0)).ok()?);
    milliseconds(made.or_else(since).unwrap_or(UNIX_EPOCH))
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The settings of a run: all keys of its configuration but the layers', whose names MLflow does not take.
fn params(run: &Run) -> Vec<Value> {
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fits = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "_-. /".contains(c));
    let settings = run.config.iter().filter(|(key, _)| fits(key));
    settings
        .map(|(key, set)| {
            let text: String = value(set).chars().take(MOST_OF_A_VALUE).collect();
            json!({ "key": key, "value": text })
        })
        .collect()
}

/// All figures of a run. A point's time is that of training until then, as far as it was written down.
fn points(run: &Run, begun: u64) -> Vec<Value> {
    let mut points = Vec::new();
    let mut seconds = 0.0;
    let mut add = |line: &Line, seconds: f64| {
        let step = line.get("step").and_then(Value::as_u64).unwrap_or(0);
        let time = begun.saturating_add((seconds * 1e3) as u64);
        for (key, value) in line.iter().filter(|(key, _)| !["kind", "step"].contains(&key.as_str())) {
            let number = match value {
                Value::Null => json!("NaN"),
                value if value.is_number() => value.clone(),
                _ => continue,
            };
            points.push(json!({ "key": key, "value": number, "timestamp": time, "step": step }));
        }
    };
    let mut steps = run.lines.steps.iter().peekable();
    for line in &run.lines.epochs {
        let at = line.get("step").and_then(Value::as_u64).unwrap_or(0);
        while let Some(step) = steps.next_if(|step| step.get("step").and_then(Value::as_u64).unwrap_or(0) <= at) {
            add(step, seconds);
        }
        let own = line.get("seconds").and_then(Value::as_f64).unwrap_or(0.0);
        // An evaluation within an epoch counts from that epoch's begin.
        add(line, seconds + own);
        if !within(line) {
            seconds += own;
        }
    }
    steps.for_each(|step| add(step, seconds));
    points
}
