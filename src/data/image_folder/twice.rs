//! Photos that are there several times, by links or by lines of a list: in two classes, or trained on and validated on.

use super::super::Split;
use super::identity::Identity;
use std::collections::HashMap;
use std::path::Path;

/// The samples of a part, and what the file of each is, whatever name leads to it; `None` of one that is not there.
pub type Part<'a> = (&'a Split, &'a [Option<Identity>]);

/// What the user should know of files that are there several times among the photos at `place`. `names`: those of the classes.
pub fn notes(place: &Path, (train, trained): Part, (val, validated): Part, names: Option<&[String]>) -> Vec<String> {
    let mut first: HashMap<&Identity, usize> = HashMap::new();
    let (mut in_two, mut example) = (0, None);
    for (at, file) in trained.iter().enumerate() {
        let Some(file) = file else { continue };
        let before = *first.entry(file).or_insert(at);
        if let (Some(one), Some(other)) = (train.label(before), train.label(at))
            && one != other
        {
            in_two += 1;
            example.get_or_insert((at, [one, other]));
        }
    }
    let is_trained_on = |at: &usize| validated[*at].as_ref().is_some_and(|file| first.contains_key(file));
    let both: Vec<usize> = (0..validated.len()).filter(is_trained_on).collect();
    let place = place.display();
    let several = |number: usize, split: &Split, at: usize| several(number, &split.name(at).unwrap_or_default());
    let in_two = example.map(|(at, classes)| {
        let name = |class: i32| match names.and_then(|names| names.get(class as usize)) {
            Some(name) => format!("`{name}`"),
            None => class.to_string(),
        };
        let [one, other] = classes.map(name);
        let photos = several(in_two, train, at);
        format!(
            "`{place}`: {photos} in two classes, as {one} and {other}: the same files have several names or lines, and a model cannot learn both. Leave \
             one of the two out"
        )
    });
    let both = both.first().map(|at| {
        let photos = several(both.len(), val, *at);
        format!(
            "`{place}`: {photos} both trained on and validated on: the same files have several names or lines. What is validated is better than on new \
             photos"
        )
    });
    in_two.into_iter().chain(both).collect()
}

/// So many photos, with an example, and the verb after them.
pub fn several(number: usize, example: &str) -> String {
    match number {
        1 => format!("1 photo, `{example}`, is"),
        n => format!("{n} photos, such as `{example}`, are"),
    }
}
