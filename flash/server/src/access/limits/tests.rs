// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn peer(number: u32) -> IpAddr {
    IpAddr::V4(number.into())
}

fn limits(connections: Option<u16>, new: Option<Rate>, requests: Option<Rate>) -> Arc<Limits> {
    Limits::new(
        Settings {
            connections,
            new_connections: new,
            requests,
            ..Settings::default()
        },
        None,
    )
}

fn counted(admission: Admission) -> Option<Place> {
    match admission {
        Admission::Counted(place) => Some(place),
        _ => None,
    }
}

#[test]
fn a_client_has_so_many_connections() {
    let limits = limits(Some(2), None, None);
    let first = counted(limits.connect_at(peer(1), 0));
    let second = counted(limits.connect_at(peer(1), 0));
    assert!(first.is_some() && second.is_some());
    assert!(matches!(limits.connect_at(peer(1), 0), Admission::TooMany));
    assert!(counted(limits.connect_at(peer(2), 0)).is_some());
    drop(first);
    assert!(counted(limits.connect_at(peer(1), 0)).is_some());
}

#[test]
fn a_bucket_is_full_again_after_its_time() {
    let rate = Rate {
        per_second: 10,
        burst: 3,
    };
    let limits = limits(None, Some(rate), Some(rate));
    let places: Vec<Place> = (0..3)
        .filter_map(|_| counted(limits.connect_at(peer(1), 0)))
        .collect();
    assert_eq!(places.len(), 3);
    assert!(matches!(limits.connect_at(peer(1), 0), Admission::TooFast));
    assert!(counted(limits.connect_at(peer(1), SECOND / 10)).is_some());
    assert!(matches!(
        limits.connect_at(peer(1), SECOND / 10),
        Admission::TooFast
    ));
    // Requests have a bucket of their own, which all connections of the client share.
    let asked = [0, 1, 2, 0].map(|at: usize| places[at].request_at(SECOND));
    assert_eq!(asked, [true, true, true, false]);
    assert!(places[0].request_at(SECOND + SECOND / 10));
    let later = 10 * SECOND;
    let again = (0..5).filter(|_| places[0].request_at(later)).count();
    assert_eq!(again, 3);
}

#[test]
fn a_full_table_lets_new_clients_through_and_keeps_the_old_ones() {
    let limits = Limits::new(
        Settings {
            connections: Some(1),
            clients: WAYS,
            ..Settings::default()
        },
        None,
    );
    let mut places: Vec<Place> = (0..8)
        .filter_map(|number| counted(limits.connect_at(peer(number), 0)))
        .collect();
    assert_eq!(places.len(), WAYS);
    assert!(matches!(
        limits.connect_at(peer(100), 0),
        Admission::Untracked
    ));
    assert!(matches!(limits.connect_at(peer(3), 0), Admission::TooMany));
    places.pop();
    assert!(counted(limits.connect_at(peer(100), 0)).is_some());
}

#[test]
fn who_is_exempt_has_no_limits() {
    let network = crate::access::networks::parse("10.0.0.0/8").expect("a network");
    let limits = Limits::new(
        Settings {
            connections: Some(1),
            exempt: [network].into_iter().collect(),
            ..Settings::default()
        },
        None,
    );
    for _ in 0..3 {
        let peer = Some([10, 1, 2, 3].into());
        assert!(matches!(limits.connect(peer), Admission::Exempt));
        assert!(matches!(limits.connect(None), Admission::Exempt));
    }
}

/// Connections go on when the configuration changes, and count for their clients under the next one.
#[test]
fn connections_keep_their_places_under_other_limits() {
    let at = |connections, clients, exempt: &str| Settings {
        connections,
        clients,
        exempt: crate::access::networks::parse(exempt).into_iter().collect(),
        ..Settings::default()
    };
    let open = |limits: &Limits| {
        let words = limits.table.entries.iter().map(|entry| &entry.word);
        words
            .map(|word| word.load(Ordering::Relaxed) & MAX_OPEN)
            .sum::<u64>()
    };
    let first = Limits::new(at(Some(2), 64, "10.0.0.0/8"), None);
    let address = Some(peer(1));
    let place = counted(first.connect_at(peer(1), 0));
    let other = counted(first.connect_at(peer(1), 0));
    assert!(place.is_some() && other.is_some());
    // One connection of two has moved by now.
    let next = Limits::new(at(Some(1), 64, "10.0.0.0/8"), Some(&first));
    let place = next.adopt(place, address);
    assert_eq!((open(&first), open(&next)), (2, 2));
    assert!(matches!(next.connect_at(peer(1), 0), Admission::TooMany));
    drop(other);
    // A table of another size begins again, with those who arrive.
    let larger = Limits::new(at(Some(1), 128, "10.0.0.0/8"), Some(&next));
    let place = larger.adopt(place, address);
    assert_eq!((open(&next), open(&larger)), (0, 1));
    // Who had no limits has some now, and the reverse.
    let late = larger.adopt(None, Some(peer(2)));
    assert_eq!(open(&larger), 2);
    let exempt = Limits::new(at(Some(1), 128, "0.0.0.0/0"), Some(&larger));
    assert!(exempt.adopt(place, address).is_none() && exempt.adopt(late, None).is_none());
    assert_eq!(open(&larger), 0);
}

/// Several loops at once: no count is lost.
#[test]
fn all_loops_count_together() {
    let limits = limits(Some(5), None, None);
    let admitted = std::thread::scope(|scope| {
        let loops: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..2_000 {
                        let _others = counted(limits.connect_at(peer(2 + round % 50), 0));
                    }
                    let mut mine = (0..5).map(|_| counted(limits.connect_at(peer(1), 0)));
                    mine.by_ref().flatten().collect::<Vec<Place>>()
                })
            })
            .collect();
        let all = loops.into_iter().map(|it| it.join().expect("no panic"));
        all.flatten().collect::<Vec<Place>>()
    });
    assert_eq!(admitted.len(), 5);
    drop(admitted);
    let open = |entry: &Entry| entry.word.load(Ordering::Relaxed) & MAX_OPEN;
    assert_eq!(limits.table.entries.iter().map(open).sum::<u64>(), 0);
}

proptest! {
    /// In any time, no more than the burst and what has come in since.
    #[test]
    fn a_bucket_gives_no_more_than_its_rate(
        per_second in 1u32..1000,
        burst in 1u32..100,
        steps in prop::collection::vec(0u64..SECOND / 10, 1..200),
    ) {
        let (full_at, rate) = (AtomicU64::new(0), Rate { per_second, burst });
        let (mut now, mut taken) = (0, 0);
        for step in steps {
            now += step;
            taken += u64::from(take(&full_at, rate, now));
            let each = SECOND / u64::from(per_second);
            prop_assert!(taken <= u64::from(burst) + now / each);
        }
    }
}
