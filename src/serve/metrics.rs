//! Counters and histograms, as Prometheus reads them: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper ends of the buckets of times, in seconds.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper ends of the buckets of batches, in samples.
const SAMPLES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// How many values lie in which range.
#[derive(Debug)]
struct Histogram {
    ends: &'static [f64],
    /// One more than there are ends.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(ends: &'static [f64]) -> Self {
        Histogram { ends, counts: vec![0; ends.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        self.counts[self.ends.iter().take_while(|end| value > **end).count()] += 1;
        self.sum += value;
    }

    /// The lines of a histogram with these labels.
    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        let ends = self.ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(&self.counts) {
            below += count;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {below}", self.sum);
    }
}

/// What a model has computed. It outlives the model that is loaded.
#[derive(Debug)]
pub struct ModelMetrics {
    /// Samples of batches, requests in them, seconds.
    batches: Mutex<[Histogram; 3]>,
    queue: AtomicUsize,
    reloaded: [AtomicU64; 2],
    /// Tokens that were read and written.
    tokens: [AtomicU64; 2],
    /// It is a language model.
    writes: AtomicBool,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        let batches = [Histogram::new(&SAMPLES), Histogram::new(&SAMPLES), Histogram::new(&SECONDS)];
        ModelMetrics {
            batches: Mutex::new(batches),
            queue: AtomicUsize::new(0),
            reloaded: Default::default(),
            tokens: Default::default(),
            writes: AtomicBool::new(false),
        }
    }
}

impl ModelMetrics {
    /// So many requests wait now.
    pub fn waiting(&self, requests: usize) {
        self.queue.store(requests, Ordering::Relaxed);
    }

    /// A batch was computed.
    pub fn computed(&self, samples: usize, requests: usize, took: Duration) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let values = [samples as f64, requests as f64, took.as_secs_f64()];
        batches.iter_mut().zip(values).for_each(|(histogram, value)| histogram.add(value));
    }

    /// It is a language model.
    pub fn writes(&self) {
        self.writes.store(true, Ordering::Relaxed);
    }

    /// A prompt of so many tokens was taken.
    pub fn read(&self, tokens: usize) {
        self.tokens[0].fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// So many tokens were generated.
    pub fn wrote(&self, tokens: usize) {
        self.tokens[1].fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// The model was loaded anew, or that failed.
    pub fn reloaded(&self, well: bool) {
        self.reloaded[usize::from(well)].fetch_add(1, Ordering::Relaxed);
    }
}

/// The labels by which requests are counted: model, route, code.
type Kind = (String, String, u16);

/// All that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Kind, u64>>,
    times: Mutex<BTreeMap<(String, String), Histogram>>,
    connections: AtomicUsize,
    models: Vec<(String, Arc<ModelMetrics>)>,
}

/// A connection that counts as one until it is dropped.
#[derive(Debug)]
pub struct Connected(Arc<Metrics>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// For models of these names.
    pub fn new(names: impl Iterator<Item = String>) -> Arc<Self> {
        Arc::new(Metrics { models: names.map(|name| (name, Arc::default())).collect(), ..Metrics::default() })
    }

    /// Those of a model.
    pub fn model(&self, name: &str) -> Arc<ModelMetrics> {
        let known = self.models.iter().find(|(known, _)| known == name);
        known.map(|(_, metrics)| Arc::clone(metrics)).unwrap_or_default()
    }

    /// A request was answered. `route` is one of those that there are, and `model` a model that there is, or empty: neither has a word of the client's.
    pub fn answered(&self, model: &str, route: &str, code: u16, took: Duration) {
        let (model, route) = (model.to_owned(), route.to_owned());
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = times.entry((model.clone(), route.clone())).or_insert_with(|| Histogram::new(&SECONDS));
        histogram.add(took.as_secs_f64());
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry((model, route, code)).or_default() += 1;
    }

    /// A connection was made.
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(Arc::clone(self))
    }

    /// All of it as text. `ready` says which models are, `memory` how much requests have.
    pub fn text(&self, ready: impl Fn(&str) -> bool, memory: usize) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, body: &dyn Fn(&mut String, &str)| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            body(&mut text, name);
        };
        let version = env!("CARGO_PKG_VERSION");
        family("runner_build_info", "gauge", "The program's version.", &|text, name| {
            let _ = writeln!(text, "{name}{{version=\"{version}\"}} 1");
        });
        family("runner_requests_total", "counter", "Requests that were answered.", &|text, name| {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            for ((model, route, code), count) in requests.iter() {
                let _ = writeln!(text, "{name}{{model=\"{model}\",route=\"{route}\",code=\"{code}\"}} {count}");
            }
        });
        let help = "Seconds from the head of a request to its answer.";
        family("runner_request_duration_seconds", "histogram", help, &|text, name| {
            let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            for ((model, route), histogram) in times.iter() {
                histogram.write(text, name, &format!("model=\"{model}\",route=\"{route}\""));
            }
        });
        let families = [
            ("runner_batch_samples", "Samples that were computed together."),
            ("runner_batch_requests", "Requests that were computed together."),
            ("runner_batch_duration_seconds", "Seconds that the device took."),
        ];
        for (number, (name, help)) in families.into_iter().enumerate() {
            family(name, "histogram", help, &|text, name| {
                for (model, metrics) in &self.models {
                    let batches = metrics.batches.lock().unwrap_or_else(PoisonError::into_inner);
                    batches[number].write(text, name, &format!("model=\"{model}\""));
                }
            });
        }
        family(
            "runner_tokens_total",
            "counter",
            "Tokens of prompts, and tokens that were generated.",
            &|text, name| {
                for (model, metrics) in self.models.iter().filter(|(_, metrics)| metrics.writes.load(Ordering::Relaxed))
                {
                    for (kind, count) in ["prompt", "generated"].iter().zip(&metrics.tokens) {
                        let count = count.load(Ordering::Relaxed);
                        let _ = writeln!(text, "{name}{{model=\"{model}\",kind=\"{kind}\"}} {count}");
                    }
                }
            },
        );
        family("runner_queue_requests", "gauge", "Requests that wait to be computed.", &|text, name| {
            for (model, metrics) in &self.models {
                let _ = writeln!(text, "{name}{{model=\"{model}\"}} {}", metrics.queue.load(Ordering::Relaxed));
            }
        });
        family("runner_model_ready", "gauge", "1 if a model answers.", &|text, name| {
            for (model, _) in &self.models {
                let _ = writeln!(text, "{name}{{model=\"{model}\"}} {}", u8::from(ready(model)));
            }
        });
        family("runner_model_loads_total", "counter", "How often a model was loaded anew.", &|text, name| {
            for (model, metrics) in &self.models {
                for (result, count) in ["failed", "done"].iter().zip(&metrics.reloaded) {
                    let count = count.load(Ordering::Relaxed);
                    let _ = writeln!(text, "{name}{{model=\"{model}\",result=\"{result}\"}} {count}");
                }
            }
        });
        family("runner_connections", "gauge", "Open connections.", &|text, name| {
            let _ = writeln!(text, "{name} {}", self.connections.load(Ordering::Relaxed));
        });
        family("runner_request_memory_bytes", "gauge", "Memory that requests have.", &|text, name| {
            let _ = writeln!(text, "{name} {memory}");
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_their_ranges() {
        let metrics = Metrics::new(["m".to_owned()].into_iter());
        for (code, milliseconds) in [(200, 1), (200, 3), (400, 90_000)] {
            metrics.answered("m", "/predict", code, Duration::from_millis(milliseconds));
        }
        metrics.model("m").computed(3, 2, Duration::from_millis(5));
        metrics.model("m").waiting(7);
        metrics.model("m").writes();
        metrics.model("m").read(5);
        metrics.model("m").wrote(3);
        let connected = metrics.connected();
        let text = metrics.text(|_| true, 12);
        for line in [
            "runner_requests_total{model=\"m\",route=\"/predict\",code=\"200\"} 2",
            "runner_request_duration_seconds_bucket{model=\"m\",route=\"/predict\",le=\"0.0005\"} 0",
            "runner_request_duration_seconds_bucket{model=\"m\",route=\"/predict\",le=\"0.001\"} 1",
            "runner_request_duration_seconds_bucket{model=\"m\",route=\"/predict\",le=\"10\"} 2",
            "runner_request_duration_seconds_bucket{model=\"m\",route=\"/predict\",le=\"+Inf\"} 3",
            "runner_request_duration_seconds_count{model=\"m\",route=\"/predict\"} 3",
            "runner_batch_samples_bucket{model=\"m\",le=\"2\"} 0",
            "runner_batch_samples_bucket{model=\"m\",le=\"4\"} 1",
            "runner_batch_requests_sum{model=\"m\"} 2",
            "runner_queue_requests{model=\"m\"} 7",
            "runner_model_ready{model=\"m\"} 1",
            "runner_tokens_total{model=\"m\",kind=\"prompt\"} 5",
            "runner_tokens_total{model=\"m\",kind=\"generated\"} 3",
            "runner_connections 1",
            "runner_request_memory_bytes 12",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        drop(connected);
        assert!(metrics.text(|_| false, 0).contains("runner_connections 0"));
    }
}
