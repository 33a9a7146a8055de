//! Weights of classes by how rare they are.

use crate::config::Experiment;
use crate::config::language::sections::{ClassWeights, Loss};
use crate::data::{DataSpec, Field, Split};
use crate::graph::{DType, Variables};
use crate::model::{Mode, forward};

/// What the classes of a target have come to weigh.
#[derive(Debug, Clone, PartialEq)]
pub struct Balanced {
    /// The head that learns it; `None`: it is the main target.
    pub head: Option<String>,
    /// A number for each class.
    pub weights: Vec<f64>,
}

/// The loss of the main target, and those of heads with their names.
fn losses(experiment: &Experiment) -> impl Iterator<Item = (Option<&str>, &Loss)> {
    let heads = experiment.heads.iter().map(|head| (Some(head.name()), &head.loss.0));
    std::iter::once((None, &experiment.loss)).chain(heads)
}

/// Puts numbers in the place of `weight = "balanced"`, from the labels of `train`: scikit-learn's `class_weight`, the number
/// of targets, divided by that of the classes that occur and by that of the targets of the class. A class that does not occur
/// weighs 1: also an output of the model beyond the classes that occur, where their number was only seen in the labels. Masks are read for it. The numbers, if there were none before; `None` where the labels
/// are neither in memory nor in masks.
pub fn balance(experiment: &mut Experiment, train: &Split, data: &DataSpec) -> Option<Vec<Balanced>> {
    let counted: Option<Vec<Option<Balanced>>> = losses(experiment)
        .enumerate()
        .map(|(nth, (head, loss))| match loss.is_to_be_balanced() {
            true => {
                let weights = weights_of(experiment, (nth, loss), train, data)?;
                Some(Some(Balanced { head: head.map(str::to_owned), weights }))
            }
            false => Some(None),
        })
        .collect();
    let counted = counted?;
    let losses = std::iter::once(&mut experiment.loss).chain(experiment.heads.iter_mut().map(|head| &mut head.loss.0));
    for (loss, balanced) in losses.zip(&counted) {
        if let (Some(weight), Some(balanced)) = (loss.class_weights(), balanced) {
            *weight = Some(ClassWeights::Numbers(balanced.weights.clone()));
        }
    }
    Some(counted.into_iter().flatten().collect())
}

/// What the classes weigh of the target of that number, which is learnt by `loss`.
fn weights_of(
    experiment: &Experiment,
    (nth, loss): (usize, &Loss),
    train: &Split,
    data: &DataSpec,
) -> Option<Vec<f64>> {
    let number = |fields: &[Field]| {
        let mut targets = fields.iter().enumerate().filter(|(_, field)| field.is_target());
        targets.nth(nth).map(|(number, _)| number)
    };
    // Of the main target the model may put out more than were seen.
    let classes = match nth {
        0 => {
            let classes = data.labels()?.number;
            outputs(experiment, data).map_or(classes, |outputs| outputs.max(classes))
        }
        _ => data.fields[number(&data.fields)?].kind.classes()?.number,
    };
    let ignored = match nth {
        0 => experiment.engine_loss(),
        _ => loss.describe(),
    }
    .ignore_index();
    let field = number(train.fields()).filter(|number| train.fields()[*number].dtype == DType::I32)?;
    let mut counts = vec![0u64; classes];
    for sample in 0..train.len() {
        let known = train.classes(sample, field, |label| {
            let count = usize::try_from(label).ok().and_then(|label| counts.get_mut(label));
            if let Some(count) = count.filter(|_| Some(label) != ignored) {
                *count += 1;
            }
        });
        if !known {
            return None;
        }
    }
    let (all, occur) = (counts.iter().sum::<u64>(), counts.iter().filter(|n| **n > 0).count());
    let weight = |n: &u64| if *n > 0 { all as f64 / (occur as f64 * *n as f64) } else { 1.0 };
    Some(counts.iter().map(weight).collect())
}

/// How many classes the model puts out, if that may be more than were seen. What does not fit is reported where the model is built.
fn outputs(experiment: &Experiment, data: &DataSpec) -> Option<usize> {
    if data.labels().is_some_and(|classes| classes.exact) {
        return None;
    }
    // Batch normalisation without running statistics takes two samples or more.
    let forward = forward(experiment, data, &mut Variables::new(), 2, Mode::Predict).ok()?;
    Some(forward.graph.shape(forward.prediction).last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::data::Values;

    #[test]
    fn rare_classes_weigh_more() {
        let text = "[data]\nsource = \"digits\"\n[model]\nlayers = [\"flatten\"]\n[loss]\ntype = \"cross_entropy\"\nweight = \"balanced\"\n\
                    ignore_index = 3\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
        let mut experiment = config::load_str("t", text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
        let labels = vec![0, 0, 0, 1, 3, 3, 2, 2];
        let split = Split::labelled(Values::Floats(vec![0.0; 8]), [1], labels).unwrap();
        let data = DataSpec::labelled(DType::F32, [1], 5);
        // As sklearn.utils.class_weight.compute_class_weight of [0, 0, 0, 1, 2, 2].
        let expected = [2.0 / 3.0, 2.0, 1.0, 1.0, 1.0];
        let got = balance(&mut experiment, &split, &data);
        assert_eq!(got, Some(vec![Balanced { head: None, weights: expected.to_vec() }]));
        assert!(!experiment.loss.is_to_be_balanced());
        assert_eq!(balance(&mut experiment, &split, &data), Some(Vec::new()), "they are kept");
    }
}
