//! A part of the cases that stands for all, for a machine where time is short.

use crate::root::spread;
use std::process::Command;

#[test]
fn however_many_are_taken_they_are_from_all_over_the_list() {
    for taken in [5, 12, 50, 100] {
        let mut list: Vec<usize> = (0..200).collect();
        spread(&mut list);
        let mut first = list[..taken].to_vec();
        first.sort_unstable();
        let gaps = first.windows(2).map(|pair| pair[1] - pair[0]);
        let largest = gaps.chain([first[0], 199 - first[taken - 1]]).max().unwrap();
        assert!(largest <= 3 * 200 / taken, "{taken}: a gap of {largest} in {first:?}");
        list.sort_unstable();
        assert!(list.iter().copied().eq(0..200), "{list:?}");
    }
}

#[test]
fn cases_that_the_time_does_not_allow_are_left_out_and_counted() {
    let run = |seconds: &str| {
        let test = ["--exact", "parity::a_backend_that_rounds_passes", "--nocapture"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        let done = command.args(test).env("RUNNER_TEST_CASES", "softmax").env("RUNNER_TEST_SECONDS", seconds).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{done:?}");
        let said = String::from_utf8(done.stdout).unwrap();
        let left_out = said.lines().find_map(|line| line.strip_prefix("cases left out: ").map(|n| n.parse().unwrap()));
        (said.matches("case ").count(), left_out.unwrap_or(0))
    };
    let (all, none) = (run("600"), run("0"));
    assert!(all.0 > 3 && all.1 == 0, "{all:?}");
    assert_eq!(none, (0, all.0));
}
