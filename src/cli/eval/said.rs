//! What a model says of a target of a sample, with what is true of it: as columns of a table, and as JSON.

use super::learnt::Learnt;
use super::losses::{log_softmax, mean_loss, mean_of_labels, mean_pinball, of_class, of_likelihood};
use crate::graph::Shape;
use crate::graph::op::{ElementwiseLoss, Loss, Task};
use serde_json::{Map, Value, json};

/// What a model says of a target, and its loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    what: What,
    /// `None`: losses of samples are not written; `Some(None)`: this one has none.
    loss: Option<Option<f64>>,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A class, with the probabilities of all.
    Class { target: Option<usize>, prediction: usize, probabilities: Vec<f64> },
    /// A class for each position.
    Positions { targets: Vec<Option<usize>>, predictions: Vec<usize> },
    /// Yes or no for each label, with the probability of a yes.
    Labels { targets: Option<Vec<f32>>, probabilities: Vec<f64> },
    /// Numbers: one for each target, or one for each of several quantiles of it.
    Values { targets: Option<Vec<f32>>, predictions: Vec<f32>, quantiles: Vec<f64> },
    /// A text.
    Text { target: String, prediction: String },
}

impl Learnt<'_> {
    /// What `output` says of a sample, and its loss where that is simple: the likelihood of a class, or a mean over its numbers. `shape` is that of what is
    /// put out for a batch.
    pub fn said(&self, output: &[f32], target: &[[u8; 4]], shape: &Shape) -> Said {
        let class = |bytes: &[u8; 4], classes: usize| {
            let class = i32::from_ne_bytes(*bytes);
            let counts = self.loss.ignore_index() != Some(class);
            usize::try_from(class).ok().filter(|class| counts && *class < classes)
        };
        let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let (what, loss) = match self.loss.task() {
            Task::Classification if target.len() == 1 => {
                let logs = log_softmax(output);
                let target = class(&target[0], output.len());
                let loss = self.loss.is_likelihood().then(|| target.map(|class| of_likelihood(logs[class])));
                let probabilities = logs.iter().map(|log| log.exp()).collect();
                (What::Class { target, prediction: largest(output), probabilities }, loss)
            }
            Task::Classification => {
                let classes = shape.last();
                let targets = target.iter().map(|bytes| class(bytes, classes)).collect();
                (What::Positions { targets, predictions: output.chunks_exact(classes).map(largest).collect() }, None)
            }
            task => {
                let floats: Vec<f32> = target.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
                let loss = self.loss_of_numbers(output, &floats).map(Some);
                let order = |list: Vec<f32>| in_pytorch_order(list, shape);
                let (output, targets) = (order(output.to_vec()), (!floats.is_empty()).then(|| order(floats)));
                let what = match task {
                    Task::BinaryClassification => {
                        let probabilities = output.iter().map(|x| 1.0 / (1.0 + f64::from(-x).exp())).collect();
                        What::Labels { targets, probabilities }
                    }
                    Task::Classification | Task::Regression => {
                        What::Values { targets, predictions: output, quantiles: self.quantiles.to_vec() }
                    }
                };
                (what, loss)
            }
        };
        Said { what, loss }
    }

    /// The loss of a sample's numbers, if there are some and all weigh the same.
    fn loss_of_numbers(&self, output: &[f32], targets: &[f32]) -> Option<f64> {
        let alike = matches!(self.loss, Loss::Elementwise(_)) && !targets.is_empty();
        alike.then(|| self.loss_of(output, targets)[0])
    }

    /// The loss of a sample as it enters the mean over samples: times what it weighs there by its class, and that weight. `targets` are numbers, or the
    /// numbers of classes.
    pub fn loss_of(&self, output: &[f32], targets: &[f32]) -> [f64; 2] {
        let each = self.quantiles.len().max(1);
        // It is that of what is learnt.
        let learnt = |list: &[f32], each: usize| {
            self.standard.map_or_else(|| list.to_vec(), |standard| standard.repeated(each).of(list))
        };
        let of_numbers = match self.loss {
            Loss::CrossEntropy(loss) => {
                let rows = output.chunks_exact((output.len() / targets.len().max(1)).max(1)).zip(targets);
                let each = rows.map(|(row, class)| of_class(loss, row, *class as i32));
                return each.fold([0.0; 2], |[sum, weights], [loss, weight]| [sum + loss, weights + weight]);
            }
            Loss::Binary(loss) => mean_of_labels(loss, output, targets),
            Loss::Elementwise(loss @ ElementwiseLoss::BceWithLogits) => mean_loss(*loss, output, targets),
            Loss::Elementwise(_) if each > 1 => {
                mean_pinball(self.quantiles, &learnt(output, each), &learnt(targets, 1))
            }
            Loss::Elementwise(loss) => mean_loss(*loss, &learnt(output, 1), &learnt(targets, 1)),
        };
        [of_numbers, 1.0]
    }
}

/// A sample's numbers as PyTorch has them: images channels-first. `shape` is that of a batch.
fn in_pytorch_order(list: Vec<f32>, shape: &Shape) -> Vec<f32> {
    match shape.nhwc() {
        Some([_, h, w, c]) if list.len() == h * w * c => {
            (0..c * h * w).map(|i| list[i % (h * w) * c + i / (h * w)]).collect()
        }
        _ => list,
    }
}

fn label(names: &[String], class: usize) -> String {
    names.get(class).cloned().unwrap_or_else(|| class.to_string())
}

impl Said {
    /// A text, where another one is the target.
    pub fn text(target: String, prediction: String) -> Said {
        Said { what: What::Text { target, prediction }, loss: None }
    }

    /// Whether there is a class at each position, for which a table has no room.
    pub fn has_positions(&self) -> bool {
        matches!(self.what, What::Positions { .. })
    }

    /// Its columns with their names; `names` are those of classes, and `guarded` makes of a text what a table may have.
    pub fn cells(
        &self,
        (names, called): (&[String], &[String]),
        guarded: &dyn Fn(String) -> String,
    ) -> Vec<(String, String)> {
        let own = |class: usize| guarded(label(names, class));
        let mut cells = Vec::new();
        let mut cell = |name: &str, text: String| cells.push((name.to_owned(), text));
        let loss = |cell: &mut dyn FnMut(&str, String)| {
            if let Some(loss) = self.loss {
                cell("loss", loss.map_or(String::new(), |loss| loss.to_string()));
            }
        };
        // Several of a kind have names or numbers after that of their column.
        let several =
            |what: &str, i: usize, of: usize| if of == 1 { what.to_owned() } else { format!("{what}_{}", i + 1) };
        match &self.what {
            What::Class { target, prediction, probabilities } => {
                cell("target", target.map_or(String::new(), own));
                cell("prediction", own(*prediction));
                loss(&mut cell);
                for (class, p) in probabilities.iter().enumerate() {
                    cell(&format!("probability_{}", label(names, class)), p.to_string());
                }
            }
            What::Labels { targets, probabilities } => {
                let of = probabilities.len();
                let name = |what: &str, i: usize| match names.get(i) {
                    Some(label) if of > 1 => format!("{what}_{label}"),
                    _ => several(what, i, of),
                };
                for (i, t) in targets.iter().flatten().enumerate() {
                    cell(&name("target", i), t.to_string());
                }
                for (i, p) in probabilities.iter().enumerate() {
                    cell(&name("prediction", i), u8::from(*p > 0.5).to_string());
                }
                loss(&mut cell);
                for (i, p) in probabilities.iter().enumerate() {
                    cell(&name("probability", i), p.to_string());
                }
            }
            What::Values { targets, predictions, quantiles } => {
                let each = quantiles.len().max(1);
                let of = predictions.len() / each;
                let several = |what: &str, i: usize| match called.get(i).filter(|_| called.len() == of && of > 1) {
                    Some(name) => format!("{what}_{name}"),
                    None => several(what, i, of),
                };
                for (i, t) in targets.iter().flatten().enumerate() {
                    cell(&several("target", i), t.to_string());
                }
                for (i, x) in predictions.iter().enumerate() {
                    let name = several("prediction", i / each);
                    let behind = quantiles.get(i % each).map_or(String::new(), |q| format!("_q{q}"));
                    cell(&(name + &behind), x.to_string());
                }
                loss(&mut cell);
            }
            What::Text { target, prediction } => {
                cell("target", guarded(target.clone()));
                cell("prediction", guarded(prediction.clone()));
            }
            What::Positions { .. } => {}
        }
        cells
    }

    /// As JSON; `names` are those of classes.
    pub fn json(&self, names: &[String]) -> Map<String, Value> {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
        match &self.what {
            What::Class { target, prediction, probabilities } => {
                put("target", json!(target));
                put("prediction", json!(prediction));
                if !names.is_empty() {
                    put("target_label", json!(target.map(|class| label(names, class))));
                    put("prediction_label", label(names, *prediction).into());
                }
                put("probabilities", json!(probabilities));
            }
            What::Positions { targets, predictions } => {
                put("target", json!(targets));
                put("prediction", json!(predictions));
            }
            What::Text { target, prediction } => {
                put("target", json!(target));
                put("prediction", json!(prediction));
            }
            What::Labels { targets, probabilities } => {
                if let Some(targets) = targets {
                    put("target", json!(targets));
                }
                put("prediction", probabilities.iter().map(|p| u8::from(*p > 0.5)).collect());
                put("probabilities", json!(probabilities));
            }
            What::Values { targets, predictions, quantiles } => {
                if let Some(targets) = targets {
                    put("target", json!(targets));
                }
                put("prediction", json!(predictions));
                if !quantiles.is_empty() {
                    put("quantiles", json!(quantiles));
                }
            }
        }
        if let Some(loss) = self.loss {
            put("loss", json!(loss));
        }
        out
    }
}
