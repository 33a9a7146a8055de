//! Parameters in any order, and messages that say no more and no less than what is wrong.

use super::errors::{GOOD, changed, rendered};

/// A file that extends another may define what a parameter of that is made of.
#[test]
fn parameters_may_stand_in_any_order() {
    let model = |params: &str| {
        let text = changed(&[("out_features = 10 }", "out_features = \"$b\" }")]);
        text.replace("[loss]", &format!("[params]\n{params}\n[loss]"))
    };
    assert_eq!(rendered(&model("a = 2\nb = \"$z * $a\"\nz = 5"), &[]), "");
    let set = rendered(&model("a = 2\nb = \"$a * 4\""), &["params.z=10", "params.b=$z"]);
    assert!(!set.contains("error") && set.contains("the parameter `a` is not used"), "{set}");
    let circle = rendered(&model("b = \"$c\"\nc = \"$b + 1\""), &[]);
    assert!(circle.contains("the parameters `b` and `c` need one another"), "{circle}");
    assert_eq!(circle.matches("error: ").count(), 1, "{circle}");
    let unknown = rendered(&model("b = \"$nothing\""), &[]);
    assert!(unknown.contains("there is no parameter `nothing`") && !unknown.contains("parameter `b`"), "{unknown}");
}

#[test]
fn numbers_below_zero_and_arithmetic_without_parameters_are_explained() {
    let negative = rendered(GOOD, &["data.batch_size=-3"]);
    assert!(negative.contains("at least 1") && !negative.contains("at least 0"), "{negative}");
    let text = rendered(&changed(&[("out_features = 10 }", "out_features = \"10 + 2\" }")]), &[]);
    assert!(text.contains("an expression has a `$name` or `{i}` in it"), "{text}");
    let seeds =
        rendered(&changed(&[("seed = 1", "seed = 9223372036854775806"), ("epochs = 3", "epochs = 3\nseeds = 3")]), &[]);
    assert!(seeds.contains("beyond the largest seed"), "{seeds}");
    assert!(rendered(GOOD, &["seed=99999999999999999999"]).contains("found 1e20"));
}

#[test]
fn what_follows_from_layers_that_are_cut_off_is_no_mistake() {
    let many = changed(&[("layers = [\n", "layers = [\n  { block = \"a\", repeat = 99_999 },\n")])
        + "[blocks.a]\nlayers = [\"relu\", \"relu\"]\n";
    let said = rendered(&many, &[]);
    assert!(said.contains("too many layers") && !said.contains("puts out"), "{said}");
}
