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

fn refused_field(params: Value) -> String {
    let error = RuleSet::from_params(&params, 7).unwrap_err();
    assert!(!error.remedy.is_empty());
    error.field
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
            refused_field(params(condition.clone())),
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
        (
            with("classes", json!([{"name": "video"}])),
            "classes[0].tag",
        ),
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
        (
            with("classes", json!([{"name": "audio", "tag": 1}])),
            "rules[0].class",
        ),
        (with("rules", json!(null)), "rules"),
        (with("rules", json!([7])), "rules[0]"),
        (
            with("rules", json!([good["rules"][0], good["rules"][0]])),
            "rules[1].id",
        ),
    ] {
        assert_eq!(refused_field(params.clone()), field, "{params}");
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
    let params = patterns(MAX_RULES, r"^/usr/bin/vlc --intf dummy .*\.ts$");
    assert!(RuleSet::from_params(&params, 7).is_ok());
}

#[test]
fn patterns_are_bounded_together() {
    // Each takes more than a quarter of a mebibyte, and the bound is 16.
    let params = patterns(100, r"\w{12}");
    let error = RuleSet::from_params(&params, 7).unwrap_err();
    assert!(error.field.ends_with("].match.cmdline"), "{error}");
    assert!(error.remedy.contains("fewer"), "{error}");
}
