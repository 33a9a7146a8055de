//! Gradient rules against central differences, all in double precision.

use crate::case::{Built, Draw};
use crate::cases::all;
use runner::backend::reference::{Values, evaluate};
use runner::graph::{Graph, ValueId};

/// How many single elements of each operand are moved; besides, all are moved together.
const ELEMENTS: usize = 8;

/// How far, against operands of about one: the cube root of a double's precision balances the two errors.
const STEP: f64 = 6e-6;

/// `Σ y · dy` after the operand `of` has been moved by `by` along `direction`.
fn objective(forward: &Graph, built: &Built, of: ValueId, direction: &[f64], by: f64) -> f64 {
    let (y, dy) = built.seed.expect("a gradient is wanted");
    let mut values: Values = built.values.clone();
    for (v, d) in values.get_mut(&of).expect("operands have values").iter_mut().zip(direction) {
        *v += by * d;
    }
    evaluate(forward, &mut values);
    values[&y].iter().zip(&values[&dy]).map(|(y, dy)| y * dy).sum()
}

#[test]
fn gradient_rules_match_central_differences() {
    let mut checked = 0;
    for case in all().iter().filter(|c| c.smooth) {
        let built = case.build();
        let mut forward = built.graph.clone();
        forward.nodes.retain(|n| !n.backward);
        let mut values = built.values.clone();
        evaluate(&built.graph, &mut values);

        let mut draw = Draw::new(&format!("{} (direction)", case.name));
        for (operand, grad) in &built.grads {
            let grad = &values[grad];
            let scale = grad.iter().fold(0.0f64, |m, g| m.max(g.abs()));
            let mut directions = vec![draw.normal([grad.len()]).data];
            for _ in 0..ELEMENTS.min(grad.len()) {
                let mut one = vec![0.0; grad.len()];
                one[draw.between(0, grad.len() - 1)] = 1.0;
                directions.push(one);
            }
            for direction in directions {
                let found: f64 = grad.iter().zip(&direction).map(|(g, d)| g * d).sum();
                let up = objective(&forward, &built, *operand, &direction, STEP);
                let down = objective(&forward, &built, *operand, &direction, -STEP);
                let expected = (up - down) / (2.0 * STEP);
                let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
                let allowed = 1e-6 * scale * norm + 1e-9;
                let at = built.operands.iter().position(|o| o == operand);
                assert!(
                    (found - expected).abs() <= allowed,
                    "{}, operand {at:?}: the rule gives {found}, differences {expected}, allowed {allowed:e}",
                    case.name
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "only {checked} differences were taken");
}
