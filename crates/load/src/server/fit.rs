//! Costs of an accept and of an operation for the server, told apart by how they came.

/// Sums over stretches of a run: CPU time c, accepts a, operations o.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeastSquares {
    aa: f64,
    ao: f64,
    oo: f64,
    ac: f64,
    oc: f64,
}

/// Microseconds of CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    pub(super) accept: f64,
    pub(super) operation: f64,
}

/// Minimum part that must be left to tell accepts and operations apart: where they come in fixed proportion nothing is left; below this it is noise.
const LEAST_APART: f64 = 0.05;

impl LeastSquares {
    /// Adds a stretch with these numbers of accepts and operations, and what it cost in microseconds.
    pub(super) fn add(&mut self, accepts: f64, operations: f64, cost: f64) {
        self.aa += accepts * accepts;
        self.ao += accepts * operations;
        self.oo += operations * operations;
        self.ac += accepts * cost;
        self.oc += operations * cost;
    }

    /// Returns the two costs that differ least, in squares, from what was measured. None where accepts and operations came together all the time, as
    /// they do when each connection is an operation.
    pub(super) fn solve(&self) -> Option<Costs> {
        let apart = self.aa * self.oo - self.ao * self.ao;
        if self.aa == 0.0 || self.oo == 0.0 || apart < LEAST_APART * self.aa * self.oo {
            return None;
        }
        let accept = (self.ac * self.oo - self.oc * self.ao) / apart;
        let operation = (self.oc * self.aa - self.ac * self.ao) / apart;
        (accept > 0.0 && operation > 0.0).then_some(Costs { accept, operation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(stretches: &[(f64, f64, f64)]) -> Option<Costs> {
        let mut fit = LeastSquares::default();
        stretches.iter().for_each(|(accepts, operations, cost)| fit.add(*accepts, *operations, *cost));
        fit.solve()
    }

    #[test]
    fn costs_are_told_apart_where_they_come_apart() {
        // 20 us an accept, 5 us an operation; while connections are made, some operations come already.
        let costs = solve(&[(1000.0, 100.0, 20_500.0), (1000.0, 300.0, 21_500.0), (0.0, 500.0, 2_500.0)]).expect("they do");
        assert!((costs.accept - 20.0).abs() < 1e-6 && (costs.operation - 5.0).abs() < 1e-6, "{costs:?}");
    }

    #[test]
    fn where_they_come_together_nobody_can() {
        assert_eq!(solve(&[(1000.0, 1000.0, 20_000.0), (990.0, 991.0, 19_000.0)]), None, "each connection is an operation");
        assert_eq!(solve(&[(1000.0, 0.0, 20_000.0)]), None, "no operation");
        assert_eq!(solve(&[(0.0, 10.0, 50.0)]), None, "no accept");
        assert_eq!(solve(&[(10.0, 0.0, 5.0), (0.0, 10.0, -1.0)]), None, "a cost is above 0");
    }
}
