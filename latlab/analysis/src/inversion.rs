//! Service inversion (formula 3.1): how much the order of the response times differs from that of the
//! sizes.
//!
//! The distance of a response is the difference between its place in the order of response times and
//! its place in the order of sizes. The sum of all distances is divided by its maximum, `floor(n²/2)`.
//! Among responses of the same size, the N-th in the order of response times gets the N-th place of
//! that size.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::SeedableRng;

/// Responses in the order of their response times, each represented by the rank of its size.
///
/// The formula needs nothing else, so it is computed by counting, in one pass over the order.
#[derive(Debug, Clone)]
pub struct Order {
    /// For each response, fastest first: the rank of its size among the different sizes, from 0.
    pub ranks: Vec<u32>,
    /// The index of each response.
    pub indices: Vec<u32>,
    /// Number of responses of each size.
    counts: Vec<u64>,
    /// Responses that have the same response time as a response of another size.
    pub tied: u64,
}

impl Order {
    /// From pairs of size and response time. Responses with equal times are ordered by size, because
    /// the clock does not show which was first.
    pub fn new(responses: &[(u64, u64)]) -> Order {
        let mut by_size: Vec<u32> = (0..responses.len() as u32).collect();
        by_size.sort_unstable_by_key(|index| responses[*index as usize].0);
        let mut rank_of = vec![0u32; responses.len()];
        let mut counts = Vec::new();
        let mut last = None;
        for index in by_size {
            let size = responses[index as usize].0;
            if last != Some(size) {
                counts.push(0);
                last = Some(size);
            }
            let rank = counts.len() - 1;
            counts[rank] += 1;
            rank_of[index as usize] = rank as u32;
        }
        let mut indices: Vec<u32> = (0..responses.len() as u32).collect();
        indices.sort_unstable_by_key(|index| {
            let index = *index as usize;
            (responses[index].1, rank_of[index], index)
        });
        let mut tied = 0;
        let same_time = |a: &u32, b: &u32| responses[*a as usize].1 == responses[*b as usize].1;
        for group in indices.chunk_by(same_time) {
            let first = rank_of[group[0] as usize];
            if group.iter().any(|index| rank_of[*index as usize] != first) {
                tied += group.len() as u64;
            }
        }
        Order {
            ranks: indices
                .iter()
                .map(|index| rank_of[*index as usize])
                .collect(),
            indices,
            counts,
            tied,
        }
    }

    pub fn value(&self) -> f64 {
        walk(self.ranks.iter().copied(), &self.counts)
    }

    /// The value for only those responses that `keeps` selects.
    pub fn value_of(&self, keeps: impl Fn(u32) -> bool) -> f64 {
        let kept = |(rank, index): (&u32, &u32)| keeps(*index).then_some(*rank);
        let places = || self.ranks.iter().zip(&self.indices).filter_map(kept);
        let mut counts = vec![0; self.counts.len()];
        for rank in places() {
            counts[rank as usize] += 1;
        }
        walk(places(), &counts)
    }

    /// The value if responses with equal times are in the reverse order of their sizes: the maximum
    /// that a finer clock could show.
    pub fn value_with_ties_against(&self, responses: &[(u64, u64)]) -> f64 {
        let time = |place: usize| responses[self.indices[place] as usize].1;
        let mut ranks = Vec::with_capacity(self.ranks.len());
        let mut begin = 0;
        while begin < self.ranks.len() {
            let mut end = begin + 1;
            while end < self.ranks.len() && time(end) == time(begin) {
                end += 1;
            }
            ranks.extend(self.ranks[begin..end].iter().rev());
            begin = end;
        }
        walk(ranks.into_iter(), &self.counts)
    }

    /// The value of a server that serves in random order: the mean over `rounds` random orders.
    pub fn random(&self, rounds: u32, seed: u64) -> f64 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut ranks = self.ranks.clone();
        let mut sum = 0.0;
        for _ in 0..rounds.max(1) {
            ranks.shuffle(&mut random);
            sum += walk(ranks.iter().copied(), &self.counts);
        }
        sum / f64::from(rounds.max(1))
    }

    /// The number of random orders whose mean is close to the expected value: with few responses, more
    /// are needed.
    pub fn rounds(&self) -> u32 {
        const SHUFFLED: usize = 300_000;
        (SHUFFLED / self.ranks.len().max(1)).clamp(3, 30_000) as u32
    }

    /// The maximum for these sizes: the largest responses first. It is 1 if all sizes are different.
    pub fn reversed(&self) -> f64 {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        walk(ranks.into_iter(), &self.counts)
    }
}

/// Formula 3.1 for pairs of size and response time, in O(n log n).
pub fn inversion(responses: &[(u64, u64)]) -> f64 {
    Order::new(responses).value()
}

fn walk(ranks: impl Iterator<Item = u32>, counts: &[u64]) -> f64 {
    let mut next = Vec::with_capacity(counts.len());
    let mut before = 0u64;
    for count in counts {
        next.push(before);
        before += count;
    }
    let n = u128::from(before);
    let mut sum = 0u128;
    for (place, rank) in ranks.enumerate() {
        let ideal = &mut next[rank as usize];
        sum += u128::from((place as u64).abs_diff(*ideal));
        *ideal += 1;
    }
    let most = n * n / 2;
    if most == 0 {
        return 0.0;
    }
    sum as f64 / most as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Literally as in section 3.4.2: compares each response with all others.
    fn by_definition(responses: &[(u64, u64)]) -> f64 {
        let n = responses.len();
        let mut sum = 0;
        for (index, (size, latency)) in responses.iter().enumerate() {
            let is_before = |other: usize| {
                let (other_size, other_latency) = responses[other];
                (other_latency, other_size, other) < (*latency, *size, index)
            };
            let place = (0..n).filter(|other| is_before(*other)).count();
            let smaller = responses.iter().filter(|other| other.0 < *size).count();
            let same_before = (0..n)
                .filter(|other| responses[*other].0 == *size && is_before(*other))
                .count();
            sum += place.abs_diff(smaller + same_before);
        }
        let most = n * n / 2;
        if most == 0 {
            0.0
        } else {
            sum as f64 / most as f64
        }
    }

    #[test]
    fn the_papers_example_is_a_third() {
        // A to E have sizes 1 to 5; the response times are in the order B, C, A, D, E.
        let value = inversion(&[(1, 30), (2, 10), (3, 20), (4, 40), (5, 50)]);
        assert_eq!(value, 4.0 / 12.0);
        assert_eq!(format!("{value:.2}"), "0.33");
    }

    #[test]
    fn sorted_is_0_and_reversed_is_1() {
        for n in [2u64, 3, 10, 11, 1000] {
            let sorted: Vec<_> = (0..n).map(|i| (i, i)).collect();
            let reversed: Vec<_> = (0..n).map(|i| (i, n - i)).collect();
            assert_eq!(inversion(&sorted), 0.0, "{n}");
            assert_eq!(inversion(&reversed), 1.0, "{n}");
        }
        assert_eq!(inversion(&[]), 0.0);
        assert_eq!(inversion(&[(7, 7)]), 0.0);
    }

    #[test]
    fn equal_sizes_take_the_places_of_their_size_in_order() {
        assert_eq!(inversion(&[(5, 3), (5, 1), (5, 2)]), 0.0);
        // Places 0 and 1 belong to the small ones, which are second and third: distances 1 and 1, and 2
        // for the large one.
        let value = inversion(&[(1, 20), (1, 30), (9, 10)]);
        assert_eq!(value, 4.0 / 4.0);
    }

    #[test]
    fn equal_times_are_no_inversion_and_the_doubt_is_told() {
        let responses = [(1, 10), (2, 10), (3, 10)];
        let order = Order::new(&responses);
        assert_eq!(order.value(), 0.0);
        assert_eq!(order.tied, 3);
        assert_eq!(order.value_with_ties_against(&responses), 1.0);
        assert_eq!(Order::new(&[(4, 10), (4, 10)]).tied, 0);
    }

    #[test]
    fn no_order_at_all_is_two_thirds() {
        let responses: Vec<_> = (0..20_000).map(|i| (i, i)).collect();
        let random = Order::new(&responses).random(4, 1);
        assert!((random - 2.0 / 3.0).abs() < 0.01, "{random}");
    }

    #[test]
    fn no_order_of_few_responses_is_the_mean_of_all_their_orders() {
        // For two responses it is 0 or 1; for n, each is (n² - 1) / 3n away, on average.
        for n in [2u64, 3, 5, 10] {
            let responses: Vec<_> = (0..n).map(|i| (i, i)).collect();
            let order = Order::new(&responses);
            let exact = (n * n - 1) as f64 / 3.0 / (n * n / 2) as f64;
            let random = order.random(order.rounds(), 1);
            assert!((random - exact).abs() < 0.02, "{n}: {random}, {exact}");
        }
    }

    proptest! {
        #[test]
        fn counting_is_the_definition(
            responses in prop::collection::vec((0u64..12, 0u64..40), 0..60),
        ) {
            prop_assert_eq!(inversion(&responses), by_definition(&responses));
        }

        #[test]
        fn it_is_between_0_and_what_the_sizes_allow(
            responses in prop::collection::vec((0u64..30, any::<u64>()), 0..80), seed: u64,
        ) {
            let order = Order::new(&responses);
            let most = order.reversed();
            prop_assert!((0.0..=1.0).contains(&most));
            prop_assert!((0.0..=most).contains(&order.value()));
            prop_assert!((0.0..=most).contains(&order.random(1, seed)));
            prop_assert!(order.value() <= order.value_with_ties_against(&responses));
        }

        #[test]
        fn neither_units_nor_the_rows_order_matter(
            mut responses in prop::collection::vec((0u64..30, 0u64..1 << 40), 0..80), seed: u64,
        ) {
            let value = inversion(&responses);
            responses.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            prop_assert_eq!(inversion(&responses), value);
            let other: Vec<_> = responses.iter().map(|(s, l)| (3 * s + 7, 1000 * l)).collect();
            prop_assert_eq!(inversion(&other), value);
        }

        #[test]
        fn a_part_of_an_order_is_the_order_of_the_part(
            responses in prop::collection::vec((0u64..9, 0u64..40), 0..60), mask: u64,
        ) {
            let keeps = |index: u32| mask >> (index % 64) & 1 == 1;
            let part: Vec<_> = (0..responses.len())
                .filter(|index| keeps(*index as u32))
                .map(|index| responses[index])
                .collect();
            prop_assert_eq!(Order::new(&responses).value_of(keeps), inversion(&part));
        }
    }
}
