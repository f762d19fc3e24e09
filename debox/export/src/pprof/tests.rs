//! Reads a profile back through its messages.

use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::samples::{calls, export_of, options, wild_call};
use crate::Format;

fn read(bytes: &[u8]) -> messages::Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .unwrap();
    messages::Profile::decode(&plain[..]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_profile_has_all_the_time(calls in calls()) {
        let (bytes, _) = export_of(&calls, &options(Format::Pprof, Weight::Cpu)).unwrap();
        let profile = read(&bytes);
        let sum = |index: usize| -> i64 {
            profile.sample.iter().map(|sample| sample.value[index]).sum()
        };
        let expected = |of: fn(&Call) -> u64| calls.iter().map(of).sum::<u64>() as i64;
        prop_assert_eq!(sum(0), expected(|call| call.budget.blocked_ns));
        prop_assert_eq!(sum(1), expected(|call| call.budget.cpu_ns));
        prop_assert_eq!(sum(2), expected(|call| call.budget.runqueue_ns));
        let whole = |call: &Call| u64::from(call.number >= 0 && !call.restarted);
        prop_assert_eq!(sum(3), expected(whole));
        prop_assert_eq!(&profile.string_table[0], "");
        let first = profile.default_sample_type as usize;
        prop_assert_eq!(&profile.string_table[first], "cpu");
        for location in profile.sample.iter().flat_map(|sample| &sample.location_id) {
            let location = &profile.location[*location as usize - 1];
            let function = &profile.function[location.line[0].function_id as usize - 1];
            prop_assert!((function.name as usize) < profile.string_table.len());
            prop_assert!(location.mapping_id as usize <= profile.mapping.len());
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error(calls in prop::collection::vec(wild_call(), 0..40)) {
        match export_of(&calls, &options(Format::Pprof, Weight::Blocked)) {
            Ok((bytes, _)) => drop(read(&bytes)),
            Err(error) => prop_assert!(error.to_string().contains("292 years"), "{error}"),
        }
    }
}
