//! The median rule: after an epoch a trial is stopped if its best value so far is worse than the median of what the trials before it
//! had on average until that epoch (Golovin et al., "Google Vizier: a service for black-box optimization", KDD 2017, section
//! 3.2.2). There it is the trials that are complete; here it is those of lower numbers, so that it does not matter which were faster.

use super::course::{Better, Course, Verdict};

/// When trials may be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// No trial is stopped before so many.
    pub min_epochs: u64,
    /// Nor one of the first so many.
    pub first: usize,
}

/// What becomes of each trial, given the epochs that each is to have; with `rule` none, all are trained to the end.
pub fn verdicts(courses: &[Course], epochs: &[u64], rule: Option<Rule>, better: Better) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(courses.len());
    for (i, (course, all)) in courses.iter().zip(epochs).enumerate() {
        let stopped = rule.and_then(|rule| stopped((courses, epochs), &verdicts, i, rule, better));
        verdicts.push(match stopped {
            Some(after) => Verdict::Out { after },
            None if course.reached(*all) => Verdict::Done,
            None => Verdict::Train { until: *all },
        });
    }
    verdicts
}

/// The epoch after which trial `i` is stopped, as far as that is known; `before` is what becomes of those before it.
fn stopped(
    (courses, epochs): (&[Course], &[u64]),
    before: &[Verdict],
    i: usize,
    rule: Rule,
    better: Better,
) -> Option<u64> {
    if i < rule.first {
        return None;
    }
    let judged = rule.min_epochs..epochs[i];
    for epoch in courses[i].values.keys().copied().filter(|epoch| judged.contains(epoch)) {
        let mut means = Vec::new();
        for ((course, all), verdict) in courses.iter().zip(epochs).zip(before) {
            let last = match verdict {
                Verdict::Out { after } => epoch.min(*after),
                // One that has fewer epochs counts as it was at its end.
                _ if course.reached(epoch.min(*all)) => epoch,
                // It is not known yet what there is to be compared with.
                _ => return None,
            };
            means.extend(course.mean(last));
        }
        let best = courses[i].best(epoch, better).map_or(f64::NAN, |(best, _)| best.value);
        if median(&mut means).is_some_and(|median| better.is(median, best)) {
            return Some(epoch);
        }
    }
    None
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (n, n % 2) {
        (0, _) => None,
        (n, 1) => Some(values[n / 2]),
        (n, _) => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { min_epochs: 1, first: 2 };

    fn course(values: &[f64]) -> Course {
        let values = values.iter().enumerate().map(|(i, value)| (i as u64 + 1, (*value).into()));
        Course { epochs: values.len() as u64, values: values.collect(), ended: false }
    }

    fn of(all: &[&[f64]], rule: Rule) -> Vec<Verdict> {
        let courses: Vec<Course> = all.iter().map(|values| course(values)).collect();
        verdicts(&courses, &vec![4; courses.len()], Some(rule), Better::Lower)
    }

    const LONG: Verdict = Verdict::Train { until: 4 };
    const WHOLE: [f64; 4] = [4.0, 2.0, 1.0, 1.0];

    #[test]
    fn a_trial_behind_the_median_is_stopped() {
        let out = |after| Verdict::Out { after };
        // The means of the first two are 4 after one epoch, 3 after two.
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.5]], RULE)[2], out(1));
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.0]], RULE)[2], LONG, "not worse");
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.0, 3.5]], RULE)[2], out(2));
        // Its best counts, not its last; and later epochs change nothing.
        assert_eq!(of(&[&WHOLE, &WHOLE, &[2.0, 9.0]], RULE)[2], LONG);
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.5, 0.0, 0.0, 0.0]], RULE)[2], out(1));
        assert_eq!(of(&[&WHOLE, &WHOLE, &[f64::NAN]], RULE)[2], out(1));
        // The first ones are not, nor any before its time, nor at the end.
        assert_eq!(of(&[&WHOLE, &[9.0]], RULE)[1], LONG);
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.5]], Rule { min_epochs: 2, ..RULE })[2], LONG);
        assert_eq!(of(&[&WHOLE, &WHOLE, &[4.0, 3.0, 2.0, 9.0]], RULE)[2], Verdict::Done);
    }

    #[test]
    fn it_does_not_matter_who_was_faster() {
        // The second is not there yet: the third goes on for now, and was stopped after its first epoch all the same.
        assert_eq!(of(&[&WHOLE, &[], &[4.5, 1.0]], RULE)[2], LONG);
        assert_eq!(of(&[&WHOLE, &[4.0], &[4.5, 1.0]], RULE)[2], Verdict::Out { after: 1 });
        // What a trial did after it was stopped is of no account: to the fourth the third is what it was after one epoch.
        let third: [&[f64]; 2] = [&[4.5], &[4.5, 0.0, 0.0]];
        for third in third {
            assert_eq!(of(&[&WHOLE, &WHOLE, third, &[4.0, 3.2]], RULE)[3], Verdict::Out { after: 2 });
        }
    }

    #[test]
    fn failed_trials_hold_no_trial_up() {
        let failed = Course { ended: true, ..Course::default() };
        let courses = [failed, course(&WHOLE), course(&[4.5])];
        let verdicts = verdicts(&courses, &[4; 3], Some(RULE), Better::Lower);
        assert_eq!(verdicts, [Verdict::Done, Verdict::Done, Verdict::Out { after: 1 }]);
    }

    /// A trial of fewer epochs is whole at its own end, and holds up none that has more.
    #[test]
    fn trials_may_have_epochs_of_their_own() {
        let short = course(&[4.0, 2.0]);
        let of_courses =
            |courses: &[Course], epochs: &[u64], rule| verdicts(courses, epochs, Some(rule), Better::Lower);
        let of = [short, course(&WHOLE), course(&[3.0, 3.0, 2.9])];
        // After three epochs the means are 3, of two, and 7 / 3.
        assert_eq!(of_courses(&of, &[2, 4, 4], RULE)[2], Verdict::Out { after: 3 });
        assert_eq!(of_courses(&of, &[2, 4, 4], RULE)[..2], [Verdict::Done; 2]);
        assert_eq!(of_courses(&of, &[4, 4, 4], RULE)[2], LONG, "the first is not there yet");
        // Its last epoch is no place to stop; nor is there one where it has fewer than are looked at.
        let of = [course(&WHOLE), course(&WHOLE), course(&[4.0, 9.0])];
        assert_eq!(of_courses(&of, &[4, 4, 2], RULE)[2], Verdict::Done);
        assert_eq!(of_courses(&of, &[4, 4, 2], Rule { min_epochs: 3, ..RULE })[2], Verdict::Done);
    }
}
