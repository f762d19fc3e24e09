//! Damaged, foreign and hostile files cause an error that says what is wrong, and nothing else.

use proptest::prelude::*;
use serde_json::json;

use crate::files::{meta, parquet, run, Place, Row};

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new();
    let cases: &[(&str, &[u8], &str)] = &[
        ("empty", b"", "it is empty"),
        ("blank", b" \n\n", "it is empty"),
        ("binary", b"\x00\x01\x02", "neither Parquet of latlab"),
        (
            "latin",
            b"size,latency_ms\n\xe9,3\n",
            "neither Parquet of latlab",
        ),
        ("zipped", b"\x1f\x8b\x08\x00", "it is compressed"),
        ("array.json", b"[{\"a\": 1}]", "jq -c"),
        (
            "cut.json",
            b"{\"latency_ms\": 1",
            "line 1 is not a JSON object",
        ),
        (
            "second.json",
            b"{\"latency_ms\":1}\n3\n",
            "line 2 is not a JSON object",
        ),
        ("names.csv", b"a,b\n1,2\n", "--latency-column"),
        (
            "two.csv",
            b"latency_ms,duration_ms\n1,2\n",
            "both `latency_ms` and `duration_ms`",
        ),
        ("less.csv", b"size,latency_ms\n1\n", "line 2 has 1 columns"),
        (
            "text.csv",
            b"size,latency_ms\n1,soon\n",
            "line 2: in the column `latency_ms`: `soon` is not a number",
        ),
        ("negative.csv", b"size,latency_ms\n1,-2\n", "less than 0"),
        ("nan.csv", b"size,latency_ms\n1,NaN\n", "`NaN` is not a"),
        ("huge.csv", b"size,latency_s\n1,1e300\n", "is too large"),
        (
            "size.csv",
            b"size,latency_ms\nbig,2\n",
            "in the column `size`",
        ),
        (
            "mixed.csv",
            b"size,latency\n1,2ms\n1,3\n",
            "some have a unit",
        ),
        ("none.csv", b"size,latency_ms\n", "has no requests"),
        (
            "failed.csv",
            b"size,latency_ms,status\n1,2,500\n",
            "none of the 1 requests",
        ),
        ("short.parquet", b"PAR1PAR1", "damaged"),
        ("short.db", b"SQLite format 3\0rest", "cannot"),
    ];
    for (name, content, said) in cases {
        let error = run(&place.file(name, content), &[]).expect_err(name);
        assert!(
            error.contains(said) && error.contains(name),
            "{name}: {error}"
        );
        assert!(
            !error.chars().any(|c| c.is_control() && c != '\n'),
            "{error:?}"
        );
    }
    let error = run(&place.path("nowhere"), &[]).expect_err("no file");
    assert!(error.contains("it cannot be opened"), "{error}");
    assert!(run(place.path("").as_path(), &[])
        .expect_err("a directory")
        .contains("directory"));
}

#[test]
fn a_fifo_is_not_waited_for() {
    let place = Place::new();
    let fifo = place.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo can be executed").success());
    let error = run(&fifo, &[]).expect_err("a FIFO");
    assert!(error.contains("is a FIFO"), "{error}");
    let good = place.file("good.csv", "size,latency_ms\n1,30\n2,10\n");
    let named = fifo.display().to_string();
    for option in ["--against", "--history"] {
        let error = run(&good, &[option, &named]).expect_err("a FIFO");
        assert!(error.contains("is a FIFO"), "{error}");
    }
    let error = run(std::path::Path::new("/dev/zero"), &[]).expect_err("a device");
    assert!(error.contains("is a character device"), "{error}");
}

#[test]
fn a_page_takes_the_place_of_no_file_that_is_read() {
    let place = Place::new();
    let text = "size,latency_ms\n1,30\n2,10\n";
    let (one, other) = (place.file("one.csv", text), place.file("other.csv", text));
    let link = place.path("link.csv");
    std::os::unix::fs::symlink(&other, &link).expect("a link");
    for page in [&one, &other, &link] {
        let page = page.display().to_string();
        let against = other.display().to_string();
        let options = ["--html", &page, "--against", &against];
        let error = run(&one, &options).expect_err("it would be gone");
        assert!(
            error.contains("is one of the files that are read"),
            "{error}"
        );
    }
    for path in [one, other] {
        assert_eq!(std::fs::read_to_string(path).expect("a file"), text);
    }
}

#[test]
fn databases_that_are_not_ohas() {
    let place = Place::new();
    let cases = [
        ("CREATE TABLE other (a)", "without the table `oha`"),
        ("CREATE VIEW oha AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i AS start, \
          i AS \"end\", i AS duration, 200 AS status, i AS len_bytes FROM n", "is not the table"),
        ("CREATE TABLE oha (start, \"end\", status)", "has no column `duration`"),
        ("CREATE TABLE oha (start, \"end\", duration, status, len_bytes AS (length(hex(zeroblob(1000000)))))", "has no column `len_bytes`"),
        ("CREATE TABLE oha (start, \"end\", duration, status, len_bytes); INSERT INTO oha VALUES ('x', 1, 1, 200, 1)", "row 1: the start or the end"),
        ("CREATE TABLE oha (start, \"end\", duration, status, len_bytes); INSERT INTO oha VALUES (2, 1, 1, 200, 1)", "ends before it begins"),
        ("CREATE TABLE oha (start, \"end\", duration, status, len_bytes); INSERT INTO oha VALUES (1e300, 1e301, 1, 200, 1)", "too long after"),
    ];
    for (at, (sql, said)) in cases.iter().enumerate() {
        let path = place.path(&format!("{at}.db"));
        rusqlite::Connection::open(&path)
            .expect("a database")
            .execute_batch(sql)
            .expect("a schema");
        let error = run(&path, &[]).expect_err(sql);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn parquet_that_is_not_latlabs() {
    let place = Place::new();
    let path = place.path("t.parquet");
    let refused = |meta: &serde_json::Value, rows: &[Row]| {
        parquet(&path, meta, rows);
        run(&path, &[]).expect_err("an error")
    };
    let row = Row::new(0, 10, 1);
    assert!(refused(
        &meta(json!({"schema": "latlab.requests/2"})),
        std::slice::from_ref(&row)
    )
    .contains("latlab.requests/2"));
    assert!(
        refused(&meta(json!({"mode": 7})), std::slice::from_ref(&row))
            .contains("description is damaged")
    );
    assert!(refused(&meta(json!({})), &[Row::new(0, -1, 1)]).contains("ends before it begins"));
    assert!(refused(&meta(json!({})), &[]).contains("no requests"));
    assert!(
        refused(&meta(json!({"warmup_ns": 100})), std::slice::from_ref(&row)).contains("warm-up")
    );
    assert!(refused(
        &meta(json!({})),
        &[Row {
            intended_ns: i64::MIN,
            start_ns: i64::MIN,
            ..row
        }]
    )
    .contains("before it begins"));
}

fn whole() -> Vec<u8> {
    let place = Place::new();
    let path = place.path("t.parquet");
    let rows: Vec<Row> = (0..40).map(|at| Row::new(at * 100, 50 + at, at)).collect();
    parquet(&path, &meta(json!({})), &rows);
    std::fs::read(&path).expect("a file")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_is_an_error_or_figures(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = WHOLE.get_or_init(whole).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let place = Place::new();
        let _ = run(&place.file("t.parquet", bytes), &[]);
    }

    #[test]
    fn any_table_is_an_error_or_figures(
        head in "(size|latency|latency_ms|status|start_ns|error|x|,|;|\t){1,9}",
        body in prop::collection::vec("[0-9a-z.,;\"\t +-]{0,30}", 0..8),
    ) {
        let place = Place::new();
        let _ = run(&place.file("t.csv", format!("{head}\n{}\n", body.join("\n"))), &[]);
    }

    #[test]
    fn any_lines_are_an_error_or_figures(
        lines in prop::collection::vec(
            ("(latency|latency_ms|size|timestamp|code|seq|bytes_in|a)", "(1|-1|1e400|\"2ms\"|\"x\"|null|\\{\"size\":3\\}|[0-9]{1,25}|\"2024-01-01T00:00:00Z\")", "[0-9]{1,4}"), 0..12),
    ) {
        let text: String = lines
            .iter()
            .map(|(name, value, latency)| format!("{{\"latency_ms\":{latency},\"{name}\":{value}}}\n"))
            .collect();
        let place = Place::new();
        let _ = run(&place.file("t.json", text), &[]);
    }
}
