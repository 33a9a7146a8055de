//! Successive halving: all trials have a few epochs, of which the best part has some times as many, and so on (Jamieson & Talwalkar,
//! "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016). A trial that goes on does so from where
//! it was. The schedule of its learning rate is that of the whole run from the beginning.

use super::course::{Better, Course, Verdict, ranked};

/// After how many epochs trials are compared, and how many are there until then: the last is the end of the run.
pub fn rounds(trials: usize, min_epochs: u64, reduction: usize, epochs: u64) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    let (mut budget, mut left) = (min_epochs, trials);
    while left > 1 && budget < epochs {
        all.push((budget, left));
        left = (left / reduction).max(1);
        budget = budget.saturating_mul(reduction as u64);
    }
    all.push((epochs, left));
    all
}

/// What becomes of each trial.
pub fn verdicts(courses: &[Course], rounds: &[(u64, usize)], better: Better) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Done; courses.len()];
    let mut alive: Vec<usize> = (0..courses.len()).collect();
    for (round, (budget, _)) in rounds.iter().enumerate() {
        let Some((_, next)) = rounds.get(round + 1) else {
            for i in alive.into_iter().filter(|i| !courses[*i].reached(*budget)) {
                verdicts[i] = Verdict::Train { until: *budget };
            }
            return verdicts;
        };
        if alive.iter().any(|i| !courses[*i].reached(*budget)) {
            for i in alive {
                verdicts[i] =
                    if courses[i].reached(*budget) { Verdict::Wait } else { Verdict::Train { until: *budget } };
            }
            return verdicts;
        }
        let order = ranked(courses, &alive, *budget, better);
        let (on, out) = order.split_at((*next).min(order.len()));
        out.iter().for_each(|i| verdicts[*i] = Verdict::Out { after: *budget });
        alive = on.to_vec();
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(values: &[f64]) -> Course {
        let values = values.iter().enumerate().map(|(i, value)| (i as u64 + 1, (*value).into()));
        Course { epochs: values.len() as u64, values: values.collect(), ended: false }
    }

    #[test]
    fn rounds_grow_until_one_is_left() {
        assert_eq!(rounds(9, 1, 3, 9), [(1, 9), (3, 3), (9, 1)]);
        assert_eq!(rounds(8, 2, 2, 12), [(2, 8), (4, 4), (8, 2), (12, 1)]);
        // The run ends before the numbers are down to one, and the other way round.
        assert_eq!(rounds(27, 1, 3, 5), [(1, 27), (3, 9), (5, 3)]);
        assert_eq!(rounds(2, 1, 3, 50), [(1, 2), (50, 1)]);
        assert_eq!(rounds(1, 1, 3, 50), [(50, 1)]);
        assert_eq!(rounds(5, 4, 3, 4), [(4, 5)]);
    }

    #[test]
    fn only_the_best_go_on() {
        let rounds = rounds(4, 1, 2, 4);
        assert_eq!(rounds, [(1, 4), (2, 2), (4, 1)]);
        let of = |all: &[&[f64]]| {
            let courses: Vec<Course> = all.iter().map(|values| course(values)).collect();
            verdicts(&courses, &rounds, Better::Lower)
        };
        let (train, out) = (|until| Verdict::Train { until }, |after| Verdict::Out { after });
        assert_eq!(of(&[&[], &[1.0], &[], &[]]), [train(1), Verdict::Wait, train(1), train(1)]);
        assert_eq!(of(&[&[3.0], &[1.0], &[2.0], &[4.0]]), [out(1), train(2), train(2), out(1)]);
        // What a trial did after the round does not count: the first had been behind.
        assert_eq!(of(&[&[3.0, 0.0], &[1.0, 2.0], &[2.0, 0.5], &[4.0]]), [out(1), out(2), train(4), out(1)]);
        assert_eq!(of(&[&[3.0], &[1.0, 2.0], &[2.0, 0.5, 1.0, 1.0], &[4.0]]), [out(1), out(2), Verdict::Done, out(1)]);
        // Equal ones: the earlier; what is no number is the worst.
        assert_eq!(of(&[&[1.0], &[1.0], &[1.0], &[f64::NAN]]), [train(2), train(2), out(1), out(1)]);
    }

    #[test]
    fn trials_that_have_ended_hold_no_trial_up() {
        let failed = Course { ended: true, ..Course::default() };
        let courses = [failed, course(&[1.0]), course(&[2.0]), course(&[3.0])];
        let rounds = rounds(4, 1, 2, 4);
        let (train, out) = (|until| Verdict::Train { until }, |after| Verdict::Out { after });
        assert_eq!(verdicts(&courses, &rounds, Better::Lower), [out(1), train(2), train(2), out(1)]);
    }
}
