use super::*;
use proptest::prelude::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng;

const GIB: u64 = 1 << 30;

/// A large sample of requests.
fn drawn(requests: usize, directories: u32) -> Vec<File> {
    let popularity = Popularity::new(directories);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1999);
    (0..requests)
        .map(|_| popularity.draw(&mut random))
        .collect()
}

fn share_of(files: &[File], which: impl Fn(&File) -> bool) -> f64 {
    files.iter().filter(|file| which(file)).count() as f64 / files.len() as f64
}

#[test]
fn sizes_are_those_of_the_benchmark() {
    let size = |class, number| {
        File {
            directory: 3,
            class,
            number,
        }
        .size()
    };
    assert_eq!(size(0, 1), 102);
    assert_eq!(size(0, 9), 921);
    assert_eq!(size(1, 1), 1024);
    assert_eq!(size(3, 9), 921_600);
    // "Each directory is roughly 5 MB"
    assert!((4_900_000..5_200_000).contains(&directory_bytes()));
}

#[test]
fn formula_1_1_gives_the_size_of_the_set() {
    // "At 200 simultaneous connections, the dataset size is roughly 770MB", 820: 2.7 GB, 370: 1.28 GB
    let megabytes = |connections| bytes_for_connections(connections) >> 20;
    assert_eq!(megabytes(200), 766);
    assert_eq!(megabytes(370), 1313);
    assert_eq!(megabytes(820), 2762);
    let set = FileSet {
        seed: 1,
        directories: directories_for(bytes_for_connections(820)),
    };
    let off = set.bytes().abs_diff(bytes_for_connections(820));
    assert!(off <= directory_bytes() / 2);
    assert_eq!(directories_for(1), 1);
}

/// Table 1.1, in percentages.
#[test]
fn requests_follow_table_1_1() {
    let files = drawn(400_000, 629);
    for (class, expected) in [35.0, 50.0, 14.0, 1.0].into_iter().enumerate() {
        let share = 100.0 * share_of(&files, |file| usize::from(file.class) == class);
        assert!((share - expected).abs() < 0.3, "class {class}: {share}");
    }
    let weights = [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.4];
    for (number, expected) in (1..).zip(weights) {
        let share = 100.0 * share_of(&files, |file| file.number == number);
        assert!((share - expected).abs() < 0.3, "file {number}: {share}");
    }
    let first = share_of(&files, |file| file.directory == 0);
    let tenth = share_of(&files, |file| file.directory == 9);
    assert!((first / tenth - 10.0).abs() < 1.0, "{first} {tenth}");
}

/// Table 3.2, in percentages.
#[test]
fn requests_follow_table_3_2() {
    let files = drawn(400_000, 629);
    let kilobyte = 1024;
    let series = [
        (0, 5 * kilobyte / 10, 25.06),
        (5 * kilobyte / 10 + 1, 4 * kilobyte, 28.05),
        (4 * kilobyte + 1, 6 * kilobyte, 23.55),
        (6 * kilobyte + 1, 900 * kilobyte, 23.34),
    ];
    for (from, to, expected) in series {
        let share = 100.0 * share_of(&files, |file| (from..=to).contains(&file.size()));
        assert!((share - expected).abs() < 0.3, "{from}-{to}: {share}");
    }
}

/// Table 1.2: what the most popular files take. Its megabytes are 10^6 bytes.
#[test]
fn popular_files_take_what_table_1_2_says() {
    let table = [
        (1, [2.1, 39.5, 64.6, 138.3]),
        (2, [3.0, 72.9, 123.6, 262.8]),
        (3, [4.4, 101.8, 181.2, 385.7]),
        (4, [4.9, 131.8, 235.0, 505.0]),
    ];
    for (gigabytes, expected) in table {
        let directories = directories_for(gigabytes * GIB);
        let popularity = Popularity::new(directories);
        let mut files: Vec<(f64, u64)> = (0..directories)
            .flat_map(files_of)
            .map(|file| (popularity.probability(file), file.size()))
            .collect();
        files.sort_by(|a, b| b.0.total_cmp(&a.0));
        let total: f64 = files.iter().map(|file| file.0).sum();
        assert!((total - 1.0).abs() < 1e-9);
        for (quantile, expected) in [0.5, 0.9, 0.95, 0.99].into_iter().zip(expected) {
            let mut requests = 0.0;
            let mut bytes = 0;
            for (probability, size) in &files {
                if requests >= quantile {
                    break;
                }
                requests += probability;
                bytes += size;
            }
            let megabytes = bytes as f64 / 1e6;
            let off = (megabytes - expected).abs() / expected;
            assert!(
                off < 0.2,
                "{gigabytes} GB, {quantile}: {megabytes}, not {expected}"
            );
        }
    }
}

/// "yielding an average dynamic response size of roughly 14 KB"
#[test]
fn the_mean_reply_has_14_kilobytes() {
    let popularity = Popularity::new(10);
    let mean: f64 = (0..10)
        .flat_map(files_of)
        .map(|file| popularity.probability(file) * file.size() as f64)
        .sum();
    assert!((14_000.0..15_000.0).contains(&mean), "{mean}");
}

proptest! {
    #[test]
    fn a_file_is_known_by_its_path_and_its_index(index in 0..FILES_PER_DIRECTORY * MAX_DIRECTORIES) {
        let file = File::from_index(index);
        prop_assert_eq!(file.index(), index);
        prop_assert_eq!(File::from_path(&format!("/some/where/{}", file.path())), Some(file));
    }

    #[test]
    fn other_paths_are_no_files(path in "\\PC*") {
        if let Some(file) = File::from_path(&path) {
            prop_assert!(file.size() > 0);
        }
    }

    #[test]
    fn any_size_has_its_directories(bytes: u64) {
        let directories = directories_for(bytes);
        prop_assert!((1..=MAX_DIRECTORIES).contains(&directories));
    }
}

#[test]
fn the_same_seed_asks_for_the_same_files() {
    assert_eq!(drawn(1000, 50), drawn(1000, 50));
}
