// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a connection is sent bytes, if the configuration limits it.

/// Pieces in a second, unless they would be very small or very large.
const PIECES: u64 = 8;
const SMALLEST: u64 = 1 << 10;
const LARGEST: u64 = 256 << 10;
/// Microseconds by which a loop may be late without the connection losing bytes.
const LATE: u64 = 10_000;

/// Of one connection.
#[derive(Debug, Default)]
pub struct Meter {
    /// When what has been sent is paid for, in microseconds of the loop.
    paid_at: u64,
}

impl Meter {
    /// How many bytes can be sent now, or at which millisecond of the loop the next ones can. `rate`: bytes per second.
    pub fn allow(&self, rate: Option<u64>, now_ms: u64) -> Result<usize, u64> {
        let Some(rate) = rate else {
            return Ok(usize::MAX);
        };
        match self.paid_at.div_ceil(1000) {
            at if at > now_ms => Err(at),
            _ => Ok((rate / PIECES).clamp(SMALLEST, LARGEST) as usize),
        }
    }

    pub fn spend(&mut self, rate: Option<u64>, bytes: u64, now_ms: u64) {
        if let Some(rate) = rate {
            // Rounded up, so no sum of pieces is faster than the rate.
            let time = (bytes * 1_000_000).div_ceil(rate.max(1));
            let begin = (now_ms * 1000).saturating_sub(LATE);
            self.paid_at = self.paid_at.max(begin) + time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_a_rate_there_is_no_limit() {
        let mut meter = Meter::default();
        meter.spend(None, 1 << 40, 5);
        assert_eq!(meter.allow(None, 5), Ok(usize::MAX));
    }

    proptest! {
        /// A client that takes all that it is offered gets what the rate says, within one piece.
        #[test]
        fn the_rate_is_kept(rate in 1_000u64..50_000_000, begin in 0u64..1_000_000) {
            let (mut meter, mut now, mut sent) = (Meter::default(), begin, 0);
            let most = |ms: u64| rate * ms / 1000 + rate * LATE / 1_000_000 + LARGEST + 1;
            while now < begin + 20_000 {
                match meter.allow(Some(rate), now) {
                    Ok(bytes) => {
                        let bytes = bytes as u64;
                        sent += bytes;
                        meter.spend(Some(rate), bytes, now);
                    }
                    Err(at) => {
                        prop_assert!(at > now);
                        now = at;
                    }
                }
                prop_assert!(sent <= most(now - begin));
            }
            prop_assert!(sent >= rate * 20 * 99 / 100);
        }
    }
}
