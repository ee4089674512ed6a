//! `--json`: every record of every command is one of docs/json-schema.json, which is read here.
use crate::help::COMMANDS;
use serde_json::{Map, Value, json};
use sheaf_testing::home::{Home, Run};
use std::os::unix::ffi::OsStrExt;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json-schema.json");

/// Keywords that constrain nothing.
const ANNOTATIONS: &[&str] = &["$schema", "$defs", "title", "description"];

fn schema() -> Value {
    serde_json::from_str(&std::fs::read_to_string(SCHEMA).unwrap()).unwrap()
}

/// What is wrong with `value`, if anything. A keyword that is not known here is an error as well,
/// so that nothing in the schema goes unchecked.
fn check(root: &Value, rule: &Value, value: &Value, at: &str) -> Result<(), String> {
    let rule = rule.as_object().ok_or(format!("{at}: the rule is no object"))?;
    for (keyword, operand) in rule {
        let fits = match keyword.as_str() {
            annotation if ANNOTATIONS.contains(&annotation) => true,
            "$ref" => {
                let place = operand.as_str().and_then(|text| text.strip_prefix('#')).unwrap();
                let rule = root.pointer(place).ok_or(format!("{at}: no rule {operand}"))?;
                check(root, rule, value, at)?;
                true
            }
            "oneOf" => return check_one_of(root, operand, value, at),
            "anyOf" => {
                operand.as_array().unwrap().iter().any(|rule| check(root, rule, value, at).is_ok())
            }
            "const" => operand == value,
            "enum" => operand.as_array().unwrap().contains(value),
            "type" => match operand {
                Value::Array(names) => {
                    names.iter().any(|name| is_of(name.as_str().unwrap(), value))
                }
                name => is_of(name.as_str().unwrap(), value),
            },
            "minimum" => value.as_f64().is_none_or(|number| number >= operand.as_f64().unwrap()),
            "minItems" => length(value).is_none_or(|length| length >= operand.as_u64().unwrap()),
            "maxItems" => length(value).is_none_or(|length| length <= operand.as_u64().unwrap()),
            "prefixItems" => {
                let rules = operand.as_array().unwrap().iter();
                let mut items = value.as_array().into_iter().flatten().zip(rules).enumerate();
                items.try_for_each(|(n, (item, rule))| {
                    check(root, rule, item, &format!("{at}[{n}]"))
                })?;
                true
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten().enumerate();
                items
                    .try_for_each(|(n, item)| check(root, operand, item, &format!("{at}[{n}]")))?;
                true
            }
            "required" => {
                let mut names =
                    operand.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                value.as_object().is_none_or(|object| names.all(|name| object.contains_key(name)))
            }
            "properties" | "additionalProperties" => {
                check_properties(root, rule, value, at)?;
                true
            }
            unknown => {
                return Err(format!("{at}: the schema has {unknown:?}, which is not checked"));
            }
        };
        if !fits {
            return Err(format!("{at}: {value} is not {keyword} {operand}"));
        }
    }
    Ok(())
}

fn length(value: &Value) -> Option<u64> {
    value.as_array().map(|items| items.len() as u64)
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no such type as {other}"),
    }
}

fn check_properties(
    root: &Value,
    rule: &Map<String, Value>,
    value: &Value,
    at: &str,
) -> Result<(), String> {
    let known = rule.get("properties").and_then(Value::as_object);
    for (name, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (known.and_then(|known| known.get(name)), rule.get("additionalProperties")) {
            (Some(rule), _) => check(root, rule, value, &at)?,
            (None, Some(Value::Bool(false))) => return Err(format!("{at} is not in the schema")),
            (None, Some(rule @ Value::Object(_))) => check(root, rule, value, &at)?,
            (None, _) => {}
        }
    }
    Ok(())
}

/// The alternatives differ in their `type`, so that what is wrong can be said of the one that is
/// meant.
fn check_one_of(root: &Value, rules: &Value, value: &Value, at: &str) -> Result<(), String> {
    let fitting: Vec<_> =
        rules.as_array().unwrap().iter().map(|rule| check(root, rule, value, at)).collect();
    match fitting.iter().filter(|fits| fits.is_ok()).count() {
        1 => return Ok(()),
        0 => {}
        several => return Err(format!("{at}: {several} alternatives fit {value}")),
    }
    let meant = value["type"].as_str().map(|name| json!({ "$ref": format!("#/$defs/{name}") }));
    match meant {
        Some(rule) => check(root, &rule, value, at),
        None => Err(format!("{at}: no type: {value}")),
    }
}

/// The records of a run, each checked.
#[track_caller]
fn records(run: &Run, what: &[&str]) -> Vec<Value> {
    let schema = schema();
    assert_eq!(run.errors(), "", "{what:?}: {run:?}");
    let read = |line: &str| -> Value {
        let record =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{what:?}: {error}: {line}"));
        check(&schema, &schema, &record, "record")
            .unwrap_or_else(|wrong| panic!("{what:?}: {wrong}: {record}"));
        record
    };
    run.stdout.lines().map(read).collect()
}

/// Three hosts with files, links, numbers and bytes that are no text; `some` is missing on n3.
fn home() -> Home {
    let home = Home::with_config("[groups]\nweb = \"n[1-2]\"\n");
    for host in 1..=3 {
        home.write(&format!("export/n{host}/odd"), &format!("v{}\nb\n", host % 2));
        home.write(
            &format!("export/n{host}/dir/number"),
            &format!("{host}.5 x {}\n", i128::MAX / 4),
        );
        let raw = home.write(&format!("export/n{host}/raw"), "");
        std::fs::write(raw, b"raw\xff\n").unwrap();
        std::os::unix::fs::symlink("odd", home.path().join(format!("export/n{host}/link")))
            .unwrap();
        if host != 3 {
            home.write(&format!("export/n{host}/some"), "some\n");
        }
    }
    home.write("source", "new\n");
    home
}

/// What is run on the hosts of [`home`], and the exit code.
const RUNS: &[(i32, &[&str])] = &[
    (0, &["grep", "-n", "v", ":/odd"]),
    (0, &["grep", "--stats", "-C1", "v", ":/odd"]),
    (0, &["grep", "-o", "v", ":/odd"]),
    (0, &["grep", "-c", "v", ":/odd"]),
    (0, &["grep", "-l", "v", ":/odd"]),
    (0, &["grep", "-a", "raw", ":/raw"]),
    (1, &["grep", "none", ":/odd"]),
    (4, &["grep", "v", ":/odd", ":/none", ":/some"]),
    (0, &["cat", ":/odd", ":/raw"]),
    (0, &["ls", "-lai", ":/"]),
    (0, &["ls", ":/"]),
    (0, &["ls", "-l", ":/link"]),
    (0, &["stat", ":/odd", ":/link", ":/"]),
    (0, &["stat", "-c", "%s", ":/odd"]),
    (0, &["du", "-ch", ":/"]),
    (0, &["sha", "-a", "blake3", ":/odd"]),
    (4, &["sha", ":/some"]),
    (4, &["sha", "-c", ":/odd"]),
    (0, &["read", ":/odd"]),
    (0, &["read", "-a", "packed", ":/raw"]),
    (0, &["read", "-a", "sum", ":/dir/number"]),
    (0, &["read", "-a", "average", "--column", "1", ":/dir/number"]),
    (0, &["read", "-a", "count", ":/odd"]),
    (0, &["read", "-a", "classes", ":/odd"]),
    (0, &["read", "-a", "checksum", ":/odd"]),
    (0, &["read", "-a", "lines", ":/odd"]),
    (0, &["read", "-a", "zero", ":/odd"]),
    (1, &["read", "-a", "equal", ":/odd"]),
    (4, &["read", "-a", "lines", ":/some"]),
    (0, &["cp", "source", "@all:/copied"]),
    (0, &["cp", "--dry-run", "source", "@all:/copied"]),
    (4, &["cp", "nothing", "@all:/copied"]),
    (4, &["cp", ":/some", "got"]),
    (0, &["write", "--data", "x", "@all:/copied"]),
    (0, &["chmod", "-v", "0600", "@all:/copied"]),
    (0, &["chown", "-v", "0:0", "@all:/copied"]),
    (0, &["truncate", "-v", "-s", "4", "@all:/copied"]),
    (0, &["ln", "-v", "-s", "odd", "@all:/linked"]),
    (0, &["mkdir", "-v", "@all:/made"]),
    (0, &["rm", "-v", "@all:/copied"]),
    (4, &["rm", "@all:/copied"]),
    (0, &["hosts", "--fold", "n[1-3]"]),
    (0, &["hosts", "-e", "n[1-3]"]),
    (0, &["hosts", "-l"]),
    (0, &["hosts", "--groupsources"]),
    (0, &["config", "check"]),
    (0, &["config", "show"]),
    (0, &["tree", "plan"]),
    (0, &["tree", "show"]),
    (0, &["tree", "bench", "--runs", "2", "--waves", "10", "--rounds", "3", "--bytes", "1K"]),
    (0, &["tree", "simulate", "--leaves", "64"]),
    (0, &["tree", "simulate", "--leaves", "64", "--faults", "2", "--waves", "3"]),
    (0, &["status"]),
    (2, &["grep", "(", ":/odd"]),
    (2, &["cat", "n9:/odd"]),
    (2, &["cat"]),
    (2, &["--no-such-option"]),
    (2, &["token", "none", "--uses", "0"]),
    (3, &["down", "none"]),
];

/// Commands that have no answer to give as records, and those that are run apart.
const OTHERS: &[&str] = &[
    "serve",
    "doctor",
    "clean",
    "demo",
    "completions",
    "man",
    "help",
    "up",
    "token",
    "down",
    "status",
    "trace",
    "archive",
    "mount",
    "umount",
];

#[test]
fn archive_json_records_match_the_schema() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("tree")).unwrap();
    std::fs::write(home.path().join("tree/file"), "text").unwrap();
    let strange = std::ffi::OsStr::from_bytes(b"tree/\xff");
    std::os::unix::fs::symlink(strange, home.path().join(strange)).unwrap();
    for (args, names) in [
        (&["store", "--create", "tree", "s::/"][..], &["archive_stored"][..]),
        (&["store", "--stats", "--dry-run", "tree", "s::/"], &["archive_stats", "archive_stored"]),
        (&["ls", "s::/", "s::tree"], &["archived"; 3]),
        (&["get", "--dry-run", "s::tree", "back"], &["archive_fetched"]),
        (&["get", "--stats", "s::tree", "back"], &["archive_stats", "archive_fetched"]),
        (&["find", "s::"], &["archived"; 4]),
        (&["du", "-c", "s::"], &["archive_usage"; 3]),
        (&["ls", "tree"], &["local_file"; 2]),
        (&["find", "tree"], &["local_file"; 3]),
        (&["du", "-a", "tree"], &["local_usage"; 3]),
        (&["stat", "--packs", "s::", "s::tree", "s::tree/*"], &["archive_stat"; 4]),
        (&["verify", "s::"], &["archive_verified"]),
        (&["chmod", "-R", "u+r", "tree"], &["local_changed"]),
        (&["cp", "-a", "tree", "back"], &["local_copied"]),
        (&["rm", "--dry-run", "-r", "back"], &["local_removed"]),
        (&["rm", "-r", "back"], &["local_removed"]),
        (&["chmod", "-R", "g+w", "s::tree"], &["archive_changed"]),
        (&["chown", "--dry-run", "-R", ":7", "s::tree"], &["archive_changed"]),
        (&["cp", "-r", "s::tree", "s::copy"], &["archive_relocated"]),
        (&["mv", "s::copy/file", "s::copy/other"], &["archive_relocated"]),
        (&["log", "s::"], &["archive_version"]),
        (&["repack", "s::"], &["archive_repacked"]),
        (&["rm", "-r", "s::tree"], &["archive_removed"]),
        (&["repair", "s::"], &["archive_repaired"]),
    ] {
        let told = records(&home.run(&[&["--json", "archive"], args].concat()), args);
        let types: Vec<_> = told.iter().map(|record| record["type"].as_str().unwrap()).collect();
        assert_eq!(types, names, "{args:?}");
    }
}

#[test]
fn trace_json_records_match_the_schema() {
    let home = Home::new();
    let recorded = home.run(&["trace", "record", "-o", "t", "--", "cp", "/etc/passwd", "copy"]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let only = home.path().canonicalize().unwrap();
    let only = only.to_str().unwrap();
    for (args, name) in [
        (&["--json", "trace", "report", "t"][..], "trace_report"),
        (
            &["--json", "trace", "replay", "--speed", "max", "--only", only, "t", "i"],
            "trace_replay",
        ),
        (
            &[
                "--json",
                "--embedded",
                "1",
                "trace",
                "top",
                "-n",
                "1",
                "--interval",
                "1",
                "--buffers",
                ".",
            ],
            "trace_top",
        ),
    ] {
        let told = records(&home.run(args), args);
        assert_eq!(told.len(), 1, "{args:?}");
        assert_eq!(told[0]["type"], name);
    }
}

#[test]
fn clean_json_records_match_the_schema() {
    let home = Home::new();
    home.write(".cache/sheaf/bin/new", "x");
    for name in [&b"link"[..], b"\xff"] {
        let link = home.path().join(".cache/sheaf/bin").join(std::ffi::OsStr::from_bytes(name));
        std::os::unix::fs::symlink("new", link).unwrap();
    }
    for (args, states) in [
        (&["clean", "--buffers", ".", "-n"][..], &["removed", "kept", "removed"][..]),
        (&["clean", "--buffers", "."], &["removed", "kept", "removed"]),
        (&["clean", "--buffers", "."], &["kept"]),
    ] {
        let told = records(&home.run(&[&["--json"], args].concat()), args);
        let (all, files) = told.split_last().unwrap();
        let have: Vec<_> = files.iter().map(|file| file["state"].as_str().unwrap()).collect();
        assert_eq!(have, states, "{args:?}");
        assert_eq!((&all["type"], &all["kept"]), (&json!("cleaned"), &json!(1)), "{args:?}");
    }
}

#[test]
fn doctor_json_records_match_the_schema() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"h[1-2]\"\nssh = \"sh stub\"\n");
    home.write(
        "stub",
        "while test \"$1\" != --; do shift; done\ntest $2 = h1 || exit 255\nexec sh -c \"$3\"\n",
    );
    for (args, exit) in [(&["doctor", "--all", "-C", "lab"][..], 4), (&["doctor"], 0)] {
        let told = records(&home.run(&[&["--json"], args].concat()), args);
        let (all, findings) = told.split_last().unwrap();
        assert_eq!((&all["type"], &all["exit"]), (&json!("examined"), &json!(exit)), "{all}");
        assert!(findings.iter().all(|finding| finding["type"] == "finding"), "{args:?}");
    }
}

#[test]
fn every_record_of_every_command_is_in_the_schema() {
    let home = home();
    let export = home.path().join("export/%h");
    let hosts = ["--embedded", "3", "--export", export.to_str().unwrap(), "--json"];
    let mut types: Vec<String> = Vec::new();
    for (code, args) in RUNS {
        let run = home.run(&[&hosts, *args].concat());
        let records = records(&run, args);
        assert_eq!(run.code, Some(*code), "{args:?}: {run:?}");
        let last = records.last().unwrap_or_else(|| panic!("{args:?} has no record"));
        // Whatever says how it ends says what the program says.
        let exits: Vec<_> = records.iter().filter_map(|record| record["exit"].as_i64()).collect();
        assert!(exits.iter().all(|exit| *exit == i64::from(*code)), "{args:?}: {exits:?}");
        let asks_hosts = ["summary", "error"].contains(&last["type"].as_str().unwrap());
        assert!(asks_hosts || *code == 0, "{args:?}: {last}");
        types.extend(records.iter().map(|record| record["type"].as_str().unwrap().to_owned()));
    }
    for command in COMMANDS {
        let is_run = RUNS.iter().any(|(_, args)| args.starts_with(command));
        let has_below =
            COMMANDS.iter().any(|other| other.len() > command.len() && other.starts_with(command));
        assert!(is_run || has_below || OTHERS.contains(&command[0]), "{command:?} is not run");
    }
    for expected in [
        "entry", "summary", "error", "stats", "costs", "plan", "sent", "copied", "fetched", "hosts",
    ] {
        assert!(types.iter().any(|have| have == expected), "no {expected}");
    }
}

#[test]
fn sessions_speak_the_schema() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["--json"], args].concat());
    let up = run(&["up", "--processes", "3", "--session", "schema"]);
    let started = records(&up, &["up"]);
    assert_eq!(
        (&started[0]["type"], &started[0]["running"], up.code),
        (&json!("started"), &json!(3), Some(0))
    );
    let again = run(&["up", "--processes", "3", "--session", "schema"]);
    assert_eq!(records(&again, &["up"])[0]["exit"], json!(again.code));
    let status = run(&["status"]);
    let told = records(&status, &["status"]);
    let of = |name: &str| told.iter().filter(|record| record["type"] == name).count();
    assert_eq!((of("session"), of("host"), of("summary"), status.code), (1, 3, 1, Some(0)));
    let refused = run(&["token", "schema"]);
    assert_eq!(records(&refused, &["token"])[0]["exit"], json!(refused.code));
    let down = run(&["down", "schema"]);
    assert_eq!(
        (records(&down, &["down"])[0]["type"].as_str(), down.code),
        (Some("ended"), Some(0))
    );
}

#[test]
fn hosts_are_listed_on_request() {
    let home = home();
    let export = home.path().join("export/%h");
    let args = ["--embedded", "3", "--export", export.to_str().unwrap(), "--json", "--host-list"];
    for command in [&["cat", ":/some"][..], &["grep", "some", ":/some"], &["sha", ":/some"]] {
        let run = home.run(&[&args, command].concat());
        let records = records(&run, command);
        assert_eq!(
            (&records[0]["hosts"], &records[0]["host_list"]),
            (&json!("n[1-2]"), &json!(["n1", "n2"]))
        );
        assert_eq!(records[1]["failed"][0]["host_list"], json!(["n3"]), "{command:?}");
    }
    let without = home.run(&[&args[..5], &["cat", ":/some"]].concat());
    assert!(!without.stdout.contains("host_list"), "{without:?}");
}

#[test]
fn numbers_are_numbers() {
    let home = home();
    let export = home.path().join("export/%h");
    let args = ["--embedded", "3", "--export", export.to_str().unwrap(), "--json"];
    let first =
        |command: &[&str]| records(&home.run(&[&args, command].concat()), command).swap_remove(0);
    let listed = first(&["ls", "-lih", ":/raw"]);
    assert!(listed["inode"].is_u64() && listed["links"] == 1 && listed["size"] == 5, "{listed}");
    let link = first(&["ls", "-l", ":/link"]);
    assert_eq!(
        (link["name"].as_str(), link["target"].as_str()),
        (Some("/link"), Some("odd")),
        "{link}"
    );
    let stat = first(&["stat", "n1:/link"]);
    assert_eq!(
        (&stat["size"], &stat["kind"], &stat["target"]),
        (&json!(3), &json!("symbolic link"), &json!("odd"))
    );
    assert!(stat["uid"].is_u64() && stat["mode"] == "0777", "{stat}");
    let used = first(&["du", "-h", "--apparent-size", ":/raw"]);
    assert_eq!((&used["size"], &used["path"]), (&json!(5), &json!("/raw")));
    let found = first(&["grep", "-n", "b", ":/odd"]);
    let expected = json!([{ "start": 0, "end": 1 }]);
    assert_eq!(
        (&found["line"], &found["text"], &found["matches"]),
        (&json!(2), &json!("b"), &expected)
    );
}

#[test]
fn check_itself_finds_what_is_wrong() {
    let schema = schema();
    let good = json!({ "v": 1, "type": "ended", "session": "x" });
    assert_eq!(check(&schema, &schema, &good, "record"), Ok(()));
    for bad in [
        json!({ "v": 2, "type": "ended", "session": "x" }),
        json!({ "v": 1, "type": "ended" }),
        json!({ "v": 1, "type": "ended", "session": 1 }),
        json!({ "v": 1, "type": "ended", "session": "x", "more": 1 }),
        json!({ "v": 1, "type": "nothing" }),
        json!({ "v": 1, "type": "entry", "hosts": "n1", "count": -1 }),
        json!({ "v": 1, "type": "entry", "hosts": "n1", "count": 1.5 }),
        json!({ "v": 1, "type": "entry", "hosts": "n1", "count": 1, "matches": [{ "start": 0 }] }),
        json!({ "session": "x" }),
    ] {
        assert!(check(&schema, &schema, &bad, "record").is_err(), "{bad}");
    }
    let rule = json!({ "anyOf": [{ "type": "null" }, {
        "type": "array", "minItems": 1, "maxItems": 2, "prefixItems": [{ "type": "string" }],
    }] });
    for (value, fits) in [
        (json!(null), true),
        (json!(1), false),
        (json!(["x"]), true),
        (json!(["x", 1]), true),
        (json!([1]), false),
        (json!([]), false),
        (json!(["x", 1, 2]), false),
    ] {
        assert_eq!(check(&rule, &rule, &value, "value").is_ok(), fits, "{value}");
    }
    let unknown = json!({ "type": "object", "patternProperties": {} });
    assert!(check(&unknown, &unknown, &json!({}), "record").is_err());
}
