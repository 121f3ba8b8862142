//! Scale of an axis: from numbers to places on it, and the round numbers that are written at it.

use super::unit::ChartUnit;

/// Approximate number of lines across a chart.
const TICKS: f64 = 5.0;

/// The vertical axis of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// Base of the powers; None: linear, from 0 on.
    powers: Option<f64>,
    step: f64,
}

impl Scale {
    /// Creates a scale from 0 to a round number above all values.
    pub(super) fn linear(unit: ChartUnit, values: impl Iterator<Item = f64>) -> Scale {
        let most = values.fold(0.0, f64::max);
        let step = match (unit, most) {
            (_, 0.0) => 1.0,
            (ChartUnit::Bytes, most) => {
                let unit = 1024_f64.powf(most.log(1024.0).floor().max(0.0));
                unit * round_step(most / unit / TICKS)
            }
            (_, most) => round_step(most / TICKS),
        };
        let step = if unit == ChartUnit::Count { step.max(1.0) } else { step };
        Scale { low: 0.0, high: step * (most / step).ceil().max(1.0), powers: None, step }
    }

    /// Creates a scale by powers, from below the least value above 0 to above the largest.
    pub(super) fn logarithmic(unit: ChartUnit, values: impl Iterator<Item = f64> + Clone) -> Scale {
        let base: f64 = if unit == ChartUnit::Bytes { 4.0 } else { 10.0 };
        let least = values.clone().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        if most == 0.0 {
            return Scale::linear(unit, std::iter::empty());
        }
        // Beyond these a power is 0, or infinite, and the ticks between them would not end.
        let (least, most) = (least.max(1e-300), most.clamp(1e-300, 1e300));
        let (low, high) = (least.log(base).floor(), most.log(base).ceil());
        let high = high.max(low + 1.0);
        Scale { low: base.powf(low), high: base.powf(high), powers: Some(base), step: ((high - low) / TICKS).ceil() }
    }

    /// Returns the place of a value: 0 is the bottom, 1 the top.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.powers {
            None => (value / self.high).clamp(0.0, 1.0),
            Some(_) => {
                let (low, high) = (self.low.ln(), self.high.ln());
                ((value.max(self.low).ln() - low) / (high - low)).clamp(0.0, 1.0)
            }
        }
    }

    /// Returns the numbers that are written at the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let until = self.high * (1.0 + 1e-9);
        let next = |value: &f64| match self.powers {
            None => value + self.step,
            Some(base) => value * base.powf(self.step),
        };
        let ticks: Vec<f64> =
            std::iter::successors(Some(self.low), |value| Some(next(value))).take_while(|v| *v <= until).collect();
        match self.powers {
            // Two or three lines say little about what is between them.
            Some(10.0) if ticks.len() < 4 => {
                let between = ticks.iter().flat_map(|tick| [1.0, 2.0, 5.0].map(|part| part * tick));
                between.filter(|tick| *tick <= until).collect()
            }
            _ => ticks,
        }
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        self.powers.is_some()
    }
}

/// Returns 1, 2 or 5 with zeros, no less than `at_least`.
fn round_step(at_least: f64) -> f64 {
    let power = 10_f64.powf(at_least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|step| *step >= at_least * (1.0 - 1e-9));
    step.unwrap_or(10.0 * power)
}

/// Returns the moments that are written at the axis of a run of `seconds` seconds, but for its begin.
pub(super) fn moments(seconds: f64) -> Vec<f64> {
    const STEPS: [f64; 17] = [
        1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 21_600.0,
        43_200.0,
    ];
    let wanted = seconds / TICKS;
    let step = match STEPS.into_iter().find(|step| *step >= wanted) {
        _ if wanted < 0.5 => round_step(wanted.max(1e-3)),
        Some(step) => step,
        None => 86_400.0 * round_step(wanted / 86_400.0),
    };
    (1_u32..).map(|count| f64::from(count) * step).take_while(|at| *at <= seconds * (1.0 + 1e-9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_number() {
        let ticks = |unit, most: f64| Scale::linear(unit, [most].into_iter()).ticks();
        assert_eq!(ticks(ChartUnit::Count, 10_000.0), [0.0, 2_000.0, 4_000.0, 6_000.0, 8_000.0, 10_000.0]);
        assert_eq!(ticks(ChartUnit::Count, 3.0), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(ticks(ChartUnit::Rate, 0.0), [0.0, 1.0]);
        assert_eq!(ticks(ChartUnit::Bytes, 9_000.0), [0.0, 2_048.0, 4_096.0, 6_144.0, 8_192.0, 10_240.0]);
        let scale = Scale::linear(ChartUnit::Count, [100.0].into_iter());
        assert_eq!((scale.place(0.0), scale.place(50.0), scale.place(100.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn a_logarithmic_axis_has_powers_and_a_place_for_0() {
        let scale = Scale::logarithmic(ChartUnit::Time, [0.0, 30.0, 2_000_000.0].into_iter());
        let ticks: Vec<f64> = scale.ticks().iter().map(|tick| tick.round()).collect();
        assert_eq!(
            ticks,
            [10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0, 10_000_000.0][..]
                .iter()
                .copied()
                .step_by(2)
                .collect::<Vec<_>>()
        );
        assert_eq!(scale.place(0.0), 0.0);
        assert!((scale.place(10_000.0) - 0.5).abs() < 1e-9);
        let few: Vec<f64> =
            Scale::logarithmic(ChartUnit::Time, [20.0, 80.0].into_iter()).ticks().iter().map(|v| v.round()).collect();
        assert_eq!(few, [10.0, 20.0, 50.0, 100.0]);
        assert!(!Scale::logarithmic(ChartUnit::Time, [0.0].into_iter()).is_logarithmic(), "nothing has no logarithm");
        for odd in [[5e-324, 1.0], [5e-324, 5e-324], [1.0, f64::MAX]] {
            assert!(Scale::logarithmic(ChartUnit::Time, odd.into_iter()).ticks().len() < 20, "{odd:?}");
        }
    }

    #[test]
    fn moments_are_round() {
        assert_eq!(moments(10.0), [2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(moments(90.0), [20.0, 40.0, 60.0, 80.0]);
        assert_eq!(moments(86_400.0), [21_600.0, 43_200.0, 64_800.0, 86_400.0]);
        assert_eq!(moments(1.0), [0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
    }
}
