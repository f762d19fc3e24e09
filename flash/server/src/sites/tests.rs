// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

fn opened(hosts: &[VirtualHost]) -> Result<Vec<Hosts>> {
    open(hosts, &listens(hosts)?, &Before::default()).map(|(found, _)| found)
}

fn host(names: &[&str], marks: &[&str]) -> VirtualHost {
    let location = |path: &&str| Location {
        path: path.to_string(),
        directory: Some("/".into()),
        fields: vec![(names.join(" "), path.to_string())],
        ..Location::default()
    };
    VirtualHost {
        listen: vec![([127, 0, 0, 1], 80).into()],
        tls: Vec::new(),
        names: names.iter().map(ToString::to_string).collect(),
        locations: marks.iter().map(location).collect(),
        error_pages: Vec::new(),
    }
}

#[test]
fn the_nearest_name_and_the_longest_path_win() {
    let hosts = [
        host(&["first"], &["/"]),
        host(&["a.org", "*.a.org"], &["/", "/img/", "/img/big"]),
        host(&["*.b.a.org"], &["/"]),
    ];
    let found = opened(&hosts).expect("directories");
    assert_eq!(found.len(), 1);
    let find = |host: &str, path: &str| {
        let rules = found[0].find(host, path.as_bytes()).expect("rules");
        let (names, path) = &rules.fields[0];
        format!("{names} {path}")
    };
    assert_eq!(find("a.org", ""), "a.org *.a.org /");
    assert_eq!(find("x.a.org", "img"), "a.org *.a.org /img/");
    assert_eq!(find("x.a.org", "img/x"), "a.org *.a.org /img/");
    assert_eq!(find("x.a.org", "img/big/x"), "a.org *.a.org /img/big");
    assert_eq!(find("x.a.org", "imgs"), "a.org *.a.org /");
    assert_eq!(find("x.b.a.org", "img"), "*.b.a.org /");
    assert_eq!(find(".a.org", ""), "first /");
    assert_eq!(find("evil-a.org", ""), "first /");
    assert_eq!(find("", ""), "first /");
}

#[test]
fn what_is_for_less_of_a_path_wins() {
    let mut site = host(&[], &["/", "/", "/", "/a", "/a"]);
    let marks = ["rest", "pictures", "start", "a", "a alone"];
    for (location, mark) in site.locations.iter_mut().zip(marks) {
        location.fields = vec![(String::new(), mark.to_string())];
    }
    site.locations[1].endings = vec![".png".to_string(), ".gif".to_string()];
    site.locations[2].is_exact = true;
    site.locations[4].is_exact = true;
    let found = opened(&[site]).expect("directories");
    for (path, mark) in [
        ("", "start"),
        ("b", "rest"),
        ("b/c.png", "pictures"),
        ("c.GIF", "pictures"),
        ("png", "rest"),
        ("a", "a alone"),
        ("a/b.png", "a"),
    ] {
        let rules = found[0].find("", path.as_bytes()).expect("rules");
        assert_eq!(rules.fields[0].1, mark, "{path}");
    }
}

#[test]
fn an_error_page_is_a_file_that_fits_into_memory() {
    let place = tempfile::tempdir().expect("a directory");
    let opened_with = |path: PathBuf| {
        let error_pages = vec![(404, path)];
        opened(&[VirtualHost {
            error_pages,
            ..host(&[], &["/"])
        }])
    };
    let page = place.path().join("page");
    let file = std::fs::File::create(&page).expect("room");
    file.set_len(MAX_ERROR_PAGE).expect("room");
    assert!(opened_with(page.clone()).is_ok());
    file.set_len(MAX_ERROR_PAGE + 1).expect("room");
    assert!(opened_with(page).is_err());
    assert!(opened_with(place.path().to_path_buf()).is_err());
}

#[test]
fn a_name_is_one_servers() {
    assert!(opened(&[host(&["a"], &["/"]), host(&["a"], &["/"])]).is_err());
    assert!(opened(&[host(&["*.a"], &["/"]), host(&["*.a"], &["/"])]).is_err());
}

#[test]
fn an_address_has_tls_for_all_its_servers() {
    let at = |port| Address::from(([127, 0, 0, 1], port));
    let secure = |port, name: &str| TlsListen {
        address: at(port),
        settings: tls::Settings {
            pairs: vec![tls::Pair {
                cert: name.into(),
                key: name.into(),
            }],
        },
    };
    let of = |listen: Vec<Address>, tls| VirtualHost {
        tls,
        ..VirtualHost::of_directory("/".into(), listen, FileOptions::default())
    };
    let two = [
        of(vec![at(80), at(0)], vec![secure(443, "a"), secure(0, "a")]),
        of(vec![at(0)], vec![secure(443, "b"), secure(443, "a")]),
    ];
    let found = listens(&two).expect("they agree");
    let ports = found.iter().filter_map(|listen| listen.address.port());
    assert_eq!(ports.collect::<Vec<u16>>(), [80, 0, 443, 0, 0]);
    let pairs = |listen: &Listen| listen.tls.as_ref().map(|tls| tls.pairs.len());
    let pairs: Vec<Option<usize>> = found.iter().map(pairs).collect();
    assert_eq!(pairs, [None, None, Some(2), Some(1), None]);
    let hosts = opened(&two).expect("directories");
    let numbers: Vec<usize> = hosts.iter().map(|hosts| hosts.locations.len()).collect();
    assert_eq!(numbers, [1, 1, 2, 1, 1]);
    let mixed = [of(vec![at(80)], vec![]), of(vec![], vec![secure(80, "a")])];
    assert!(listens(&mixed).is_err());
}
