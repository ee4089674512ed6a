//! What is installed is found by pkg-config and by CMake, and works from there.
use crate::tools::{built, sources, workshop};
use sheaf_testing::program::{have, succeeds};
use sheaf_testing::{Workshop, checkout};
use sheaf_tree::topology::Topology;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs below a directory of the test's.
fn installed(shop: &Workshop) -> PathBuf {
    let prefix = shop.path("prefix");
    let script = checkout().join("packaging/install.sh");
    succeeds(Command::new(script).arg("--prefix").arg(&prefix).arg("--target").arg(built()));
    assert!(prefix.join("lib/sheaf/libsheaf_wasm.so").exists(), "where the library looks for it");
    prefix
}

fn runs(front_end: &Path, back_end: &Path, shop: &Workshop) {
    // Nothing says where the inner nodes' program is: the library finds it in its prefix.
    let printed = succeeds(Command::new(front_end).arg(shop.topology(&[2, 2])).arg(back_end));
    assert_eq!(printed, "sums of 4 back ends\n");
}

#[test]
fn pkg_config_finds_it() {
    let Some(shop) = workshop() else { return };
    if !have("pkg-config") {
        return;
    }
    let prefix = installed(&shop);
    let flags = succeeds(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "sheaf"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    );
    for name in ["sum_fe", "sum_be"] {
        let compiled = Command::new("g++")
            .args(["-std=c++11", "-o"])
            .arg(shop.path(name))
            .arg(sources().join(format!("{name}.cpp")))
            .args(flags.split_whitespace())
            .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
    runs(&shop.path("sum_fe"), &shop.path("sum_be"), &shop);
}

#[test]
fn cmake_finds_it() {
    let Some(shop) = workshop() else { return };
    if !have("cmake") {
        return;
    }
    let prefix = installed(&shop);
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(tools CXX)\nset(CMAKE_CXX_STANDARD 11)\n\
         find_package(Sheaf 0.1 REQUIRED)\nforeach(name sum_fe sum_be)\n  \
         add_executable(${{name}} {}/${{name}}.cpp)\n  target_link_libraries(${{name}} Sheaf::sheaf)\n\
         endforeach()\n",
        sources().display()
    );
    std::fs::create_dir(shop.path("project")).unwrap();
    shop.write("project/CMakeLists.txt", &text);
    let (project, build) = (shop.path("project"), shop.path("build"));
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(project).arg("-B").arg(&build);
    succeeds(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    succeeds(Command::new("cmake").arg("--build").arg(&build));
    runs(&build.join("sum_fe"), &build.join("sum_be"), &shop);
}

#[test]
fn mrnet_topgen_writes_what_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, "n1 n2 n3:2\n").unwrap();
    for (shape, leaves) in [("b:4^2", 16), ("b:2x3", 6), ("k:2@8", 4), ("g:2:2,3", 5)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrnet_topgen"));
        let text =
            succeeds(command.args(["-t", shape, "-p", "9", "-f", "login", "-h"]).arg(&hosts));
        let tree = Topology::from_file(&text).unwrap();
        assert_eq!(
            (tree.leaves_len(), tree.root().host()),
            (leaves, "login".to_owned()),
            "{shape}"
        );
    }
    let out = directory.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mrnet_topgen"));
    command.args(["--topology=b:2^2", "-f", "login", "-q", "2", "-b"]).arg(&hosts);
    assert_eq!(succeeds(command.arg("-c").arg(&hosts).arg("-o").arg(&out)), "");
    let text = std::fs::read_to_string(out).unwrap();
    assert_eq!(text, "login:0 => n1:0 n2:0 ;\nn1:0 => n1:1 n2:1 ;\nn2:0 => n3:0 n1:2 ;\n");
}
