//! Links the program statically where it can. Each shared library is five mappings more that a process has, and that the model
//! `fork` copies and takes down for each connection: linked to shared ones it needs about a fifth more CPU there.
//!
//! `-C target-feature=+crt-static` does the same, but for whole builds only, of which procedural macros are a part. So the libraries
//! that the compiler asks for by name are found here instead, as scripts of the linker that name the static ones.
//!
//! With `SOCKDRAWER_SHARED` set it is linked to shared ones all the same: a static C library resolves the names of hosts by what
//! nsswitch.conf(5) names beside `files` and `dns` with libraries of its own version, which another machine need not have.
//!
//! The order of its functions is `serving.ld`, where the linker takes that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the compiler links every program with, and what static ones are made of.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("gcc_s", &["libgcc_eh.a", "libgcc.a", "libc.a"]),
    ("c", &["libc.a"]),
    ("m", &["libm.a"]),
    ("rt", &["librt.a"]),
    ("pthread", &["libpthread.a"]),
    ("util", &["libutil.a"]),
    ("dl", &["libdl.a"]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=serving.ld");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rerun-if-env-changed=SOCKDRAWER_SHARED");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is.split(',').any(|one| one == value));
    let gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    let native = env::var_os("HOST") == env::var_os("TARGET");
    if !gnu || !native {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it")).join("static");
    let order = format!("-Wl,-T,{}/serving.ld", env::var("CARGO_MANIFEST_DIR").expect("cargo names it"));
    if fs::create_dir_all(&folder).is_ok() && orders(&folder, &order) {
        println!("cargo::rustc-link-arg-bins={order}");
    }
    if env::var_os("SOCKDRAWER_SHARED").is_some() || is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        return;
    }
    // Without static libraries, which some distributions have in packages of their own, it is linked as any other program.
    if write_scripts(&folder).is_some_and(|()| links(&folder)) {
        println!("cargo::rustc-link-arg-bins=-L{}", folder.display());
        println!("cargo::rustc-link-arg-bins=-static-pie");
    }
}

/// Whether the linker, which flags may choose, takes a script: not all do.
fn orders(folder: &Path, order: &str) -> bool {
    let (source, program) = (folder.join("probe.rs"), folder.join("probe"));
    let mut compiler = Command::new(env::var_os("RUSTC").expect("cargo names it"));
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    compiler.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    compiler.arg(format!("-Clink-arg={order}")).arg("-o").arg(program).arg(&source);
    fs::write(&source, "fn main() {}\n").is_ok() && compiler.output().is_ok_and(|output| output.status.success())
}

/// Whether the smallest program can be linked statically: its first instructions, too, are in a file of their own.
fn links(folder: &Path) -> bool {
    let (source, program) = (folder.join("probe.c"), folder.join("probe"));
    let mut linker = Command::new(driver());
    linker.arg("-static-pie").arg("-o").arg(program).arg(&source);
    fs::write(&source, "int main(void) { return 0; }\n").is_ok() && linker.output().is_ok_and(|output| output.status.success())
}

fn driver() -> std::ffi::OsString {
    env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into())
}

fn write_scripts(folder: &Path) -> Option<()> {
    fs::create_dir_all(folder).ok()?;
    for (name, archives) in LIBRARIES {
        let paths: Option<Vec<String>> = archives.iter().map(|archive| find(archive)).collect();
        fs::write(folder.join(format!("lib{name}.so")), format!("GROUP ( {} )\n", paths?.join(" "))).ok()?;
    }
    Some(())
}

/// Where the linker's driver has a library; it answers with the name alone when it has none.
fn find(archive: &str) -> Option<String> {
    let answer = Command::new(driver()).arg(format!("-print-file-name={archive}")).output().ok()?;
    let path = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_absolute().then_some(path)
}
