//! Tables that cannot be read, and columns that cannot be learnt.

use super::super::*;
use super::{Place, open};
use crate::data::HoldOut;

#[test]
fn faults_of_a_table_say_what_to_do() {
    let fault = |content: &str, change: &dyn Fn(&mut TableOptions)| {
        let place = Place::new(content);
        let mut options = place.options("y");
        change(&mut options);
        format!("{:#}", open(&options).map(|_| ()).unwrap_err())
    };
    let nothing = |_: &mut TableOptions| ();
    for (content, part) in [
        ("x,z\n1,2\n", "`target` names a column `y`, which the table does not have"),
        ("x,y\n1,\n2,NA\n", "the target `y` is missing in every row"),
        ("x,y\n1,5\n2,5\n", "the target `y` is `5` in every row: there is nothing to learn"),
        ("x,y\n", "has no rows below the line"),
        ("x,y\n7,1\n7,2\n", "no column is left that the model could take: `x`: it has the same value in every row"),
    ] {
        let text = fault(content, &nothing);
        assert!(text.contains(part), "{part}: {text}");
    }
    let rule = |choice| Rule { pattern: "x".into(), choice };
    let number = Encoding::Number { scaling: Scaling::Standardize, fill: Fill::Median, bins: 8 };
    let text = fault("x,y\na,1\nb,2\n", &|o| o.rules = vec![rule(Choice::Encode(number))]);
    assert!(text.contains("the column `x` has text cells, such as `a`, `b`"), "{text}");
    let nearly: String = (0..30).map(|i| if i == 4 { "one,1\n".into() } else { format!("{i},{i}\n") }).collect();
    let text = fault(&format!("x,y\n{nearly}"), &|o| o.rules = vec![rule(Choice::Encode(number))]);
    assert!(text.contains("1 cell of 30 that is no number, the first of them `one` in line 6"), "{text}");
    let text = fault(&format!("y,x\n{nearly}"), &nothing);
    assert!(text.contains("the target `y` has 1 cell of 30 that is no number"), "{text}");
    let text = fault("x,y\n1,1\n2,2\n", &|o| o.drop = vec!["z".into()]);
    assert!(text.contains("`drop` names a column `z`"), "{text}");
    let text = fault("x,y,s\n1,1,train\n2,2,later\n", &|o| o.division.split_column = Some("s".into()));
    assert!(text.contains("line 3") && text.contains("`later`"), "{text}");
    let text = fault("x,y\n1,a\n2,b\n3,a\n4,a\n5,a\n6,a\n7,a\n8,a\n9,a\n", &|o| {
        o.division.hold_out = Some(HoldOut::Count(8));
    });
    assert!(text.contains("has no row in the training part"), "{text}");
}
