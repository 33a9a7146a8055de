//! Folds that cannot be trained on.

use super::super::*;
use super::{Place, open};

/// A class that one fold alone has is found with the first fold, whatever learns it; with another fold, in that alone.
#[test]
fn a_class_of_one_fold_is_an_error_of_the_first() {
    let kind = |i: usize| if i == 20 { "rare" } else { ["cat", "dog"][i % 2] };
    let rows: String = (0..60).map(|i| format!("{i},{},{}\n", i % 7, kind(i))).collect();
    let place = Place::new(&format!("x,y,kind\n{rows}"));
    let fold = |number, options: &TableOptions| {
        let division = Division { fold: Some(Fold { number, of: 3 }), ..options.division.clone() };
        open(&TableOptions { division, ..options.clone() }).map(|_| ()).map_err(|error| format!("{error:#}"))
    };
    let head = HeadOptions {
        name: "kind".into(),
        column: "kind".into(),
        loss: "cross_entropy",
        classes: true,
        standardize: false,
        range: None,
    };
    for options in [place.options("kind"), TableOptions { heads: vec![head], ..place.options("y") }] {
        let bad: Vec<usize> = (1..3).filter(|number| fold(*number, &options).is_err()).collect();
        assert!(bad.len() < 2, "the others have it: {bad:?}");
        let error = fold(0, &options).unwrap_err();
        let number = bad.first().map_or(1, |number| number + 1);
        assert!(error.contains(&format!("without the rows of fold {number} of 3: ")), "{error}");
        assert!(error.contains("the class `rare` of `kind` has no row in the training part"), "{error}");
    }
    assert_eq!(fold(0, &TableOptions { drop: vec!["kind".into()], ..place.options("y") }), Ok(()));
}
