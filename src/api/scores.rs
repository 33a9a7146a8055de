//! What a model puts out, as what it means: probabilities where it was trained for classes or labels.

use crate::graph::Shape;
use crate::graph::op::Task;

/// Probabilities of classes, of which `logits` are.
pub fn softmax(logits: impl Iterator<Item = f32> + Clone) -> impl Iterator<Item = f64> {
    let largest = f64::from(logits.clone().fold(f32::NEG_INFINITY, f32::max));
    let e = move |logit: f32| (f64::from(logit) - largest).exp();
    let sum: f64 = logits.clone().map(e).sum();
    logits.map(move |logit| e(logit) / sum)
}

/// The probability of a label.
pub fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + f64::from(-logit).exp())
}

/// Where the outputs of a sample have a class: those of images come channels first, others channels last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    positions: usize,
    classes: usize,
    channels_first: bool,
}

impl Places {
    /// Of so many `outputs` of a sample that has a class at each of the positions of that shape.
    pub fn new(outputs: usize, positions: &Shape) -> Places {
        let (positions, channels_first) = (positions.len(), positions.rank() == 2);
        Places { positions, classes: outputs / positions, channels_first }
    }

    /// The places of the classes' outputs at a position.
    pub fn at(self, position: usize) -> impl Iterator<Item = usize> + Clone {
        let Places { positions, classes, channels_first } = self;
        (0..classes).map(move |class| match channels_first {
            true => class * positions + position,
            false => position * classes + class,
        })
    }
}

/// Writes what the outputs of a sample mean to `into`, at the same places: probabilities of classes, at each position if there are several, or of labels;
/// numbers as they are.
pub fn scores(task: Task, positions: &Shape, outputs: &[f32], into: &mut [f32]) {
    match task {
        Task::Classification => {
            let places = Places::new(outputs.len(), positions);
            for position in 0..positions.len() {
                let probabilities = softmax(places.at(position).map(|place| outputs[place]));
                places.at(position).zip(probabilities).for_each(|(place, p)| into[place] = p as f32);
            }
        }
        Task::BinaryClassification => {
            into.iter_mut().zip(outputs).for_each(|(into, logit)| *into = sigmoid(*logit) as f32);
        }
        Task::Regression => into.copy_from_slice(outputs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(task: Task, positions: &[usize], outputs: &[f32]) -> Vec<f32> {
        let mut into = vec![0.0; outputs.len()];
        scores(task, &Shape::from(positions), outputs, &mut into);
        into
    }

    #[test]
    fn every_task_has_its_scores() {
        let third = f64::exp(2.0) / (f64::exp(2.0) + 1.0);
        assert_eq!(scored(Task::Classification, &[], &[2.0, 0.0]), [third as f32, (1.0 - third) as f32]);
        assert_eq!(scored(Task::BinaryClassification, &[], &[0.0, -1000.0]), [0.5, 0.0]);
        assert_eq!(scored(Task::Regression, &[], &[3.0, -1.5]), [3.0, -1.5]);
    }

    #[test]
    fn classes_of_positions_lie_as_the_model_puts_them_out() {
        let halves = |outputs: &[f32], positions: &[usize]| scored(Task::Classification, positions, outputs);
        // Channels first: (0, 0), (0, 1000).
        assert_eq!(halves(&[0.0, 0.0, 0.0, 1000.0], &[1, 2]), [0.5, 0.0, 0.5, 1.0]);
        // Channels last: (0, 0), (0, 1000).
        assert_eq!(halves(&[0.0, 0.0, 0.0, 1000.0], &[2]), [0.5, 0.5, 0.0, 1.0]);
    }
}
