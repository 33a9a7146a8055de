//! The errors of the naive forecast (persistence), which repeats the last value of a window. A model that is of use has smaller ones.

/// The errors of naive forecasts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NaiveErrors {
    absolute: f64,
    squared: f64,
    numbers: u64,
}

impl NaiveErrors {
    /// Takes in what was forecast, and what came.
    pub fn add(&mut self, forecast: f32, came: f32) {
        let error = f64::from(forecast) - f64::from(came);
        self.absolute += error.abs();
        self.squared += error * error;
        self.numbers += 1;
    }

    /// Takes in those of other samples.
    pub fn merge(&mut self, other: NaiveErrors) {
        self.absolute += other.absolute;
        self.squared += other.squared;
        self.numbers += other.numbers;
    }

    /// The mean of the absolute errors.
    pub fn mae(&self) -> f64 {
        self.absolute / self.numbers as f64
    }

    /// The root of the mean of their squares.
    pub fn rmse(&self) -> f64 {
        (self.squared / self.numbers as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_all_numbers() {
        let mut all = NaiveErrors::default();
        all.add(1.0, 4.0);
        let mut other = NaiveErrors::default();
        other.add(2.0, 1.0);
        other.add(2.0, 2.0);
        all.merge(other);
        assert_eq!((all.mae(), all.rmse()), (4.0 / 3.0, (10.0f64 / 3.0).sqrt()));
    }
}
