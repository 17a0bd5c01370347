// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;
use serde_json::json;

fn params(condition: Value) -> Value {
    json!({
        "revision": 3,
        "classes": [{"name": "video", "tag": 2}],
        "rules": [{"id": "r", "class": "video", "match": condition}],
    })
}

fn accepted(condition: Value) -> Match {
    let set = RuleSet::from_params(&params(condition), 15).unwrap();
    set.rules[0].condition.clone()
}

fn refused_set(params: &Value) -> String {
    let error = RuleSet::from_params(params, 7).unwrap_err();
    assert!(!error.remedy.is_empty());
    error.field
}

/// The field for which the only rule is refused, and its set is not.
fn refused_rule(params: &Value) -> String {
    let set = RuleSet::from_params(params, 7).unwrap();
    assert!(set.rules.is_empty(), "{params}");
    let [refused] = &set.refused[..] else {
        panic!("{:?}", set.refused);
    };
    assert!(!refused.error.remedy.is_empty());
    assert_eq!(refused.id, "r");
    refused.error.field.clone()
}

fn vlc() -> Facts {
    Facts {
        pid: 42,
        start_time_ticks: 900,
        exe: "/usr/bin/vlc".into(),
        cmdline: "/usr/bin/vlc --intf dummy film.ts".into(),
        uid: 1000,
        user: "media".into(),
        cgroup: "/user.slice/user-1000.slice/user@1000.service/app.slice/vlc.service".into(),
    }
}

#[test]
fn each_key_matches_and_misses() {
    for (condition, holds) in [
        (json!({"exe": "/usr/bin/vlc"}), true),
        (json!({"exe": "/usr/bin/vl"}), false),
        (json!({"cmdline": "film\\.ts$"}), true),
        (json!({"cmdline": "^film"}), false),
        (json!({"user": "media"}), true),
        (json!({"user": "1000"}), true),
        (json!({"user": "100"}), false),
        (json!({"unit": "vlc.service"}), true),
        (json!({"unit": "user@1000.service"}), true),
        (json!({"unit": "lc.service"}), false),
        (json!({"cgroup": "/user.slice"}), true),
        (json!({"cgroup": "/user.slice/"}), true),
        (json!({"cgroup": "/user.sli"}), false),
        (json!({"cgroup": "/"}), true),
        (json!({"cgroup": "/user.slice/user-*.slice"}), true),
        (json!({"cgroup": "/user.slice/*@*.service"}), false),
        (json!({"cgroup": "/user.slice/**/vlc.*"}), true),
        (json!({"cgroup": "/user.slice/**/user-1000.slice"}), true),
        (json!({"cgroup": "/**"}), true),
        (json!({"cgroup": "/*.slice"}), true),
        (json!({"cgroup": "/*.sli"}), false),
        (json!({"cgroup": "/user?slice"}), false),
        (json!({"cgroup": "/user.slice/.*"}), false),
        (json!({"pid": 42, "start_time_ticks": 900}), true),
        (json!({"pid": 42, "start_time_ticks": 901}), false),
    ] {
        assert_eq!(
            accepted(condition.clone()).holds(&vlc()),
            holds,
            "{condition}"
        );
    }
}

#[test]
fn containers_and_pods_match_by_cgroup() {
    let id = "0123456789abcdef".repeat(4);
    let uid = "7f3c9b52-0d4e-4a1b-9c58-2f6e1d0a7b43";
    let folder = format!("/kubepods/burstable/pod{uid}/{id}");
    let process = Facts {
        cgroup: folder,
        ..vlc()
    };
    for (condition, holds) in [
        (json!({"container": id}), true),
        (json!({"container": "0123456789ab"}), true),
        (json!({"container": "123456789abc"}), false),
        (json!({"pod": uid}), true),
        (
            json!({"pod": "00000000-0d4e-4a1b-9c58-2f6e1d0a7b43"}),
            false,
        ),
        (json!({"cgroup": "/kubepods*/**/pod*"}), true),
        (json!({"cgroup": "/kubepods/besteffort"}), false),
    ] {
        let condition = accepted(condition);
        assert_eq!(condition.holds(&process), holds, "{condition:?}");
        assert!(!condition.holds(&vlc()), "{condition:?}");
    }
}

/// systemd writes such a character into a cgroup's name as `\x2d`.
#[test]
fn a_cgroup_has_no_other_wildcards() {
    let name = r"/a.slice/b\x2d[c]{1}+$.slice";
    let process = Facts {
        cgroup: name.into(),
        ..vlc()
    };
    assert!(accepted(json!({"cgroup": name})).holds(&process));
    assert!(!accepted(json!({"cgroup": r"/a.slice/b\x2dc.slice"})).holds(&process));
}

#[test]
fn all_keys_must_hold() {
    assert!(accepted(json!({"exe": "/usr/bin/vlc", "user": "media"})).holds(&vlc()));
    assert!(!accepted(json!({"exe": "/usr/bin/vlc", "user": "root"})).holds(&vlc()));
}

#[test]
fn pid_rules_go_first_then_the_order() {
    let set = RuleSet::from_params(
        &json!({
            "revision": 1,
            "classes": [{"name": "a", "tag": 1}, {"name": "b", "tag": 2}],
            "rules": [
                {"id": "1", "class": "a", "match": {"user": "media"}},
                {"id": "2", "class": "b", "match": {"exe": "/usr/bin/vlc"}},
                {"id": "3", "class": "b", "match": {"pid": 42, "start_time_ticks": 900}},
            ],
        }),
        15,
    )
    .unwrap();
    assert_eq!(set.first_match(&vlc()), Some(2));
    let other = Facts { pid: 43, ..vlc() };
    assert_eq!(set.first_match(&other), Some(0));
    let stranger = Facts {
        user: "x".into(),
        ..other
    };
    assert_eq!(set.first_match(&stranger), Some(1));
}

fn exe_rule(path: &str, files: &[(&str, &str)]) -> Match {
    let mut condition = accepted(json!({"exe": path}));
    let file_of = |path: &str| {
        let found = files.iter().find(|(link, _)| *link == path);
        found.map(|(_, file)| (*file).to_owned())
    };
    condition.follow_links(file_of);
    condition
}

fn running(exe: &str, cmdline: &str) -> Facts {
    let (exe, cmdline) = (exe.to_owned(), cmdline.to_owned());
    Facts {
        exe,
        cmdline,
        ..Facts::default()
    }
}

#[test]
fn a_program_is_known_by_any_link_to_it() {
    for (rule, file, cmdline) in [
        ("/bin/cat", "/usr/bin/cat", "cat x"),
        // The file's own name does not say how it was started: a title, or nothing.
        (
            "/usr/local/bin/postgres",
            "/opt/pg-17/bin/postgres",
            "writer: idle",
        ),
        ("/opt/app/current/serve", "/opt/app/1.2/serve", ""),
        (
            "/usr/bin/python3",
            "/usr/bin/python3.11",
            "/usr/bin/python3 x.py",
        ),
        (
            "/usr/sbin/mysqld",
            "/usr/sbin/mariadbd",
            "/usr/sbin/mariadbd --user=m",
        ),
        ("/bin/sh", "/usr/bin/dash", "-sh"),
        ("/bin/cat", "/bin/busybox", "cat x"),
    ] {
        let process = running(file, cmdline);
        assert!(exe_rule(rule, &[(rule, file)]).holds(&process), "{rule}");
        assert!(!exe_rule(rule, &[]).holds(&process), "{rule}");
    }
}

#[test]
fn a_link_to_a_file_of_many_programs_stands_for_one_of_them() {
    let rule = exe_rule("/bin/cat", &[("/bin/cat", "/bin/busybox")]);
    for other in ["sh", "-sh", "/bin/sh -c cat", "httpd /bin/cat", "", "xcat"] {
        assert!(!rule.holds(&running("/bin/busybox", other)), "{other}");
    }
}

#[test]
fn a_path_matches_as_it_is_too() {
    // In a container of this guest the link may be a file, and the file may be absent.
    let linked = exe_rule("/bin/cat", &[("/bin/cat", "/usr/bin/cat")]);
    assert!(linked.holds(&running("/bin/cat", "")));
    assert!(!linked.holds(&running("/usr/bin/tac", "cat")));
    assert!(exe_rule("/srv/absent", &[]).holds(&running("/srv/absent", "")));
}

#[test]
fn links_are_followed_anew_and_a_file_that_is_gone_still_runs() {
    let mut rule = exe_rule("/bin/app", &[]);
    let (old, new) = (running("/opt/1/app", ""), running("/opt/2/app", ""));
    assert!(rule.follow_links(|_| Some("/opt/1/app".to_owned())));
    assert!(rule.holds(&old) && !rule.holds(&new));
    for again in [Some("/opt/1/app".to_owned()), None] {
        assert!(!rule.follow_links(|_| again.clone()));
        assert!(rule.holds(&old));
    }
    assert!(rule.follow_links(|_| Some("/opt/2/app".to_owned())));
    assert!(rule.holds(&new));
    // The rule is still equal to itself: heirs keep it.
    assert_eq!(rule, accepted(json!({"exe": "/bin/app"})));
}

#[test]
fn a_further_rule_has_the_room_that_the_others_left() {
    let full = RuleSet::from_params(&patterns(100, r"\w{12}"), 7).unwrap();
    let large = json!({"cmdline": r"\w{12}"});
    assert!(RuleSet::none().further(&large).is_ok());
    let error = full.further(&large).unwrap_err();
    assert_eq!(error.field, "match.cmdline");
    assert!(error.remedy.contains("fewer"), "{error}");
    assert!(full.further(&json!({"user": "media"})).is_ok());
    assert_eq!(full.further(&Value::Null).unwrap_err().field, "match");
}

#[test]
fn bad_conditions_name_the_field() {
    for (condition, field) in [
        (json!({}), "rules[0].match"),
        (json!(7), "rules[0].match"),
        (json!({"exe": "vlc"}), "rules[0].match.exe"),
        (json!({"exe": ""}), "rules[0].match.exe"),
        (json!({"exe": 5}), "rules[0].match.exe"),
        (json!({"cmdline": "("}), "rules[0].match.cmdline"),
        (
            json!({"cmdline": "(a{1000}){1000}"}),
            "rules[0].match.cmdline",
        ),
        (json!({"unit": "nginx"}), "rules[0].match.unit"),
        (json!({"cgroup": "system.slice"}), "rules[0].match.cgroup"),
        (json!({"container": "web"}), "rules[0].match.container"),
        (json!({"pod": "web-0"}), "rules[0].match.pod"),
        (json!({"pid": 42}), "rules[0].match.start_time_ticks"),
        (json!({"start_time_ticks": 42}), "rules[0].match.pid"),
        (
            json!({"pid": 1, "start_time_ticks": 1}),
            "rules[0].match.pid",
        ),
        (
            json!({"pid": 0, "start_time_ticks": 1}),
            "rules[0].match.pid",
        ),
        (
            json!({"pid": -4, "start_time_ticks": 1}),
            "rules[0].match.pid",
        ),
        (
            json!({"pid": 4.5, "start_time_ticks": 1}),
            "rules[0].match.pid",
        ),
        (
            json!({"pid": 4294967338u64, "start_time_ticks": 1}),
            "rules[0].match.pid",
        ),
        (json!({"comm": "vlc"}), "rules[0].match.comm"),
    ] {
        assert_eq!(
            refused_rule(&params(condition.clone())),
            field,
            "{condition}"
        );
    }
}

#[test]
fn bad_sets_name_the_field() {
    let good = params(json!({"user": "media"}));
    let with = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    for (params, field) in [
        (json!(null), "params"),
        (with("revision", json!("x")), "revision"),
        (with("revision", json!(-1)), "revision"),
        (with("interval_ms", json!(99)), "interval_ms"),
        (with("interval_ms", json!(10_001)), "interval_ms"),
        (with("interval_ms", json!(1e300)), "interval_ms"),
        (with("interval_ms", json!(null)), "interval_ms"),
        (with("classes", json!({})), "classes"),
        (with("classes", json!([{"name": "video"}])), "classes[0]"),
        (
            with("classes", json!([{"name": "video", "tag": 0}])),
            "classes[0].tag",
        ),
        (
            with("classes", json!([{"name": "video", "tag": 16}])),
            "classes[0].tag",
        ),
        (
            with("classes", json!([{"name": "video", "tag": 8}])),
            "classes[0].tag",
        ),
        (
            with(
                "classes",
                json!([{"name": "v", "tag": 1}, {"name": "v", "tag": 2}]),
            ),
            "classes[1].name",
        ),
        (
            with(
                "classes",
                json!([{"name": "v", "tag": 1}, {"name": "w", "tag": 1}]),
            ),
            "classes[1].tag",
        ),
        (with("rules", json!(null)), "rules"),
        (with("rules", json!([7])), "rules[0]"),
        (with("rules", json!([{"class": "video"}])), "rules[0]"),
        (with("rules", json!([{"id": ""}])), "rules[0].id"),
        (with("rules", json!({})), "rules"),
        (
            with("rules", json!([good["rules"][0], good["rules"][0]])),
            "rules[1].id",
        ),
    ] {
        assert_eq!(refused_set(&params), field, "{params}");
    }
}

#[test]
fn a_rule_of_no_class_is_refused_by_itself() {
    let mut params = params(json!({"user": "media"}));
    for class in [json!("audio"), json!(7), Value::Null] {
        params["rules"][0]["class"] = class;
        assert_eq!(refused_rule(&params), "rules[0].class");
    }
}

#[test]
fn rules_beside_a_refused_one_are_in_force() {
    let rule = |id: &str, condition| json!({"id": id, "class": "video", "match": condition});
    let mut params = params(json!({}));
    params["rules"] = json!([
        rule("first", json!({"user": "media"})),
        rule("unreadable", json!({"cmdline": "("})),
        rule("unknown", json!({"weather": "fine"})),
        rule("last", json!({"exe": "/usr/bin/vlc"})),
    ]);
    let set = RuleSet::from_params(&params, 7).unwrap();
    let ids: Vec<&str> = set.rules.iter().map(|rule| &rule.id[..]).collect();
    assert_eq!(ids, ["first", "last"]);
    let whys: Vec<String> = set.refused.iter().map(Refused::why).collect();
    let unreadable = "match.cmdline: give a regular expression (unclosed group)";
    let unknown = "match.weather: unknown variant `weather`, expected one of `exe`, `cmdline`";
    assert_eq!(whys[0], unreadable);
    assert!(whys[1].starts_with(unknown), "{}", whys[1]);
}

#[test]
fn the_reasons_of_all_rules_fit_into_a_line() {
    for letter in ["k", "\"", "\u{1}", "\u{7f}", "é", "😀"] {
        let long = letter.repeat(1000);
        for condition in [
            json!({&long: 1}),
            json!({"pid": &long}),
            json!({"exe": &long}),
            json!({"cmdline": format!("({}", letter.repeat(100))}),
        ] {
            let rule = |n: usize| json!({"id": format!("{n:\"<128}"), "class": "video", "match": condition});
            let rules: Vec<Value> = (0..16).map(rule).collect();
            let mut params = params(json!({}));
            params["rules"] = rules.into();
            let set = RuleSet::from_params(&params, 7).unwrap();
            assert_eq!(set.refused.len(), 16);
            let told = |refused: &Refused| json!({"id": refused.id, "why": refused.why()});
            let line = Value::from(set.refused.iter().map(told).collect::<Vec<_>>()).to_string();
            assert!(
                line.len() * MAX_RULES / 16 < (1 << 20) - 1000,
                "{} of {letter:?}",
                line.len()
            );
        }
    }
}

#[test]
fn interval_has_a_default() {
    let set = RuleSet::from_params(&params(json!({"user": "x"})), 7).unwrap();
    assert_eq!((set.revision, set.interval_ms), (3, 1000));
}

fn patterns(count: usize, pattern: &str) -> Value {
    let rules: Vec<Value> = (0..count)
        .map(|number| {
            let id = number.to_string();
            json!({"id": id, "class": "video", "match": {"cmdline": pattern}})
        })
        .collect();
    json!({"revision": 1, "classes": [{"name": "video", "tag": 2}], "rules": rules})
}

#[test]
fn many_plain_patterns_fit() {
    let mut params = patterns(MAX_RULES, r"^/usr/bin/vlc --intf dummy .*\.ts$");
    for (number, rule) in params["rules"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        let cgroup = format!("/kubepods.slice/**/kubepods-*-pod{number}*.slice");
        rule["match"]["cgroup"] = cgroup.into();
    }
    let set = RuleSet::from_params(&params, 7).unwrap();
    assert!(set.refused.is_empty(), "{:?}", set.refused[0]);
}

#[test]
fn patterns_are_bounded_together() {
    // Each takes more than a quarter of a mebibyte, and the bound is 16.
    let params = patterns(100, r"\w{12}");
    let set = RuleSet::from_params(&params, 7).unwrap();
    assert!((1..100).contains(&set.rules.len()), "{}", set.rules.len());
    assert_eq!(set.rules.len() + set.refused.len(), 100);
    let why = set.refused[0].why();
    assert!(why.starts_with("match.cmdline: "), "{why}");
    assert!(why.contains("fewer"), "{why}");
}
