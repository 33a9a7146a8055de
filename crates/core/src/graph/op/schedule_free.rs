//! What depends on the number of the step alone in schedule-free training (Defazio et al. 2024, "The Road Less Scheduled").

/// How much a step counts in the average that is evaluated: step `t`, from 1, weighs `t^r · (rate / full rate)^lr_power`. The rate
/// rises over `warmup_steps` to the full one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduleFree {
    /// Steps of the warm-up.
    pub warmup_steps: u64,
    /// Power of the number of the step.
    pub r: f64,
    /// Power of the learning rate.
    pub lr_power: f64,
}

impl ScheduleFree {
    /// The share of the full learning rate that a step has.
    pub fn warmth(&self, step: i64) -> f64 {
        (step as f64 / self.warmup_steps.max(1) as f64).min(1.0)
    }

    /// The share of the newest point in the average after a step: its weight over the sum of all until then.
    pub fn share(&self, step: i64) -> f64 {
        let t = step as f64;
        if t <= self.warmup_steps as f64 {
            let power = self.r + self.lr_power;
            return t.powf(power) / power_sum(power, t);
        }
        t.powf(self.r) / (self.offset() + power_sum(self.r, t))
    }

    /// What the steps of the warm-up weigh more than they would have at the full rate: not above 0.
    pub fn offset(&self) -> f64 {
        let steps = self.warmup_steps as f64;
        if steps == 0.0 {
            return 0.0;
        }
        power_sum(self.r + self.lr_power, steps) / steps.powf(self.lr_power) - power_sum(self.r, steps)
    }
}

/// Terms that are added one by one.
const DIRECT: f64 = 64.0;

/// `1^e + 2^e + … + n^e` for `e ≥ 0`: by the formula of Euler and Maclaurin beyond the first terms.
fn power_sum(e: f64, n: f64) -> f64 {
    if e == 0.0 {
        return n;
    }
    let mut sum = 0.0;
    let mut term = 1.0;
    while term <= n.min(DIRECT) {
        sum += f64::powf(term, e);
        term += 1.0;
    }
    if n > DIRECT { sum + (antiderivative(e, n) - antiderivative(e, DIRECT)) } else { sum }
}

/// What the sum from one number to another is the difference of.
fn antiderivative(e: f64, x: f64) -> f64 {
    let third = e * (e - 1.0) * (e - 2.0);
    let fifth = third * (e - 3.0) * (e - 4.0);
    x.powf(e) * (x / (e + 1.0) + 0.5 + (e / 12.0 + (fifth / 30240.0 / (x * x) - third / 720.0) / (x * x)) / x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_sums_of_weights() {
        for (warmup_steps, r, lr_power) in
            [(0, 0.0, 2.0), (10, 0.0, 2.0), (100, 0.5, 2.0), (300, 1.0, 0.0), (7, 2.5, 1.5), (200, 0.0, 0.0)]
        {
            let rule = ScheduleFree { warmup_steps, r, lr_power };
            let (mut sum, mut largest) = (0.0, 0.0f64);
            for step in 1..3000 {
                let rate = if step < warmup_steps as i64 { step as f64 / warmup_steps as f64 } else { 1.0 };
                assert_eq!(rule.warmth(step), rate, "{rule:?} {step}");
                largest = largest.max(rate);
                let weight = (step as f64).powf(r) * largest.powf(lr_power);
                sum += weight;
                let share = rule.share(step);
                assert!((share * sum / weight - 1.0).abs() < 1e-9, "{rule:?} {step}: {share} {}", weight / sum);
            }
        }
    }
}
