//! Whose an answer is: in a pipe, too, wherever that is not the same for all that is printed.
use sheaf_testing::home::Home;

/// Four hosts: `same` is equal on all, `odd` in two, `gone` is missing on n3.
fn home() -> Home {
    let home = Home::new();
    for host in 1..=4 {
        home.write(&format!("n{host}/same"), "one\ntwo\n");
        home.write(&format!("n{host}/odd"), &format!("v{}\nend", host % 2));
        if host != 3 {
            home.write(&format!("n{host}/gone"), "here\n");
        }
    }
    home
}

#[track_caller]
fn prints(args: &[&str], expected: &str) {
    let home = home();
    let export = home.path().join("%h");
    let run =
        home.run(&[&["--embedded", "4", "--export", export.to_str().unwrap()], args].concat());
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str(), run.code),
        (expected, "", Some(0)),
        "{args:?}"
    );
}

#[test]
fn contents_in_a_pipe_name_hosts_unless_all_are_of_the_same() {
    prints(&["cat", "/same"], "one\ntwo\n");
    prints(&["cat", "/same", "/same"], "one\ntwo\n");
    prints(&["cat", "/odd"], "==> n[1,3]:/odd <==\nv1\nend\n\n==> n[2,4]:/odd <==\nv0\nend");
    prints(
        &["cat", "n[1-2]:/same", "n1:/odd"],
        "==> n[1-2]:/same <==\none\ntwo\n\n==> n1:/odd <==\nv1\nend",
    );
    prints(&["cat", "n1:/same", "n1:/odd"], "one\ntwo\nv1\nend");
    prints(
        &["cat", "--each", "n[1-2]:/same"],
        "==> n1:/same <==\none\ntwo\n\n==> n2:/same <==\none\ntwo\n",
    );
}

#[test]
fn heads_can_be_had_or_left_out() {
    prints(&["cat", "--no-heading", "/odd"], "v1\nendv0\nend");
    prints(&["cat", "--heading", "/same"], "==> n[1-4]:/same <==\none\ntwo\n");
    prints(
        &["cat", "--label", "--no-heading", "--heading", "/same"],
        "==> n[1-4]:/same <==\none\ntwo\n",
    );
    prints(&["stat", "-c", "%s", "--no-heading", "/same"], "8\n");
    prints(&["ls", "--no-heading", "/same"], "/same\n");
    // What was named itself is in no directory that a heading could tell.
    prints(&["ls", "--heading", "/same", "/od*"], "n[1-4]:\n/odd  /same\n");
    prints(&["du", "-b", "--no-heading", "/same"], "8\t/same\n");
}

#[test]
fn labels_stand_in_front_of_each_line() {
    prints(&["cat", "--label", "/odd"], "n[1,3]: v1\nn[1,3]: end\nn[2,4]: v0\nn[2,4]: end");
    prints(&["cat", "-n", "--label", "/same"], "n[1-4]:      1\tone\nn[1-4]:      2\ttwo\n");
    prints(
        &["cat", "--label", "n1:/same", "n1:/odd"],
        "n1:/same: one\nn1:/same: two\nn1:/odd: v1\nn1:/odd: end",
    );
    prints(&["stat", "-c", "%s", "--label", "/same"], "n[1-4]: 8\n");
    prints(&["du", "-b", "--label", "/same"], "n[1-4]: 8\t/same\n");
    prints(&["ls", "--label", "/same"], "n[1-4]: /same\n");
}
