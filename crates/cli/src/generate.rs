//! `sockdrawer generate`: files for other programs, made of what this one is told.

mod man;
mod reference;
#[cfg(test)]
mod tests;

use crate::arguments::{self, Generated, KubernetesArguments};
use crate::outcome::{Exit, Failure};
use crate::{print, protocols, usage};
use sockdrawer_operate::{Document, Operated};
use std::fs;

/// Manifests of a run and its agents. The names in capitals are replaced.
const KUBERNETES: &str = include_str!("generate/k8s.yaml");

pub(crate) fn run(asked: &Generated) -> Result<Exit, Failure> {
    let text = match asked {
        Generated::K8s(arguments) => kubernetes(arguments)?,
        Generated::Schema => schema(),
        Generated::Man => man::page(),
        Generated::Reference => reference::page(),
        Generated::Completions { shell } => {
            let (mut command, mut text) = (arguments::command(), Vec::new());
            let name = command.get_name().to_owned();
            clap_complete::generate(*shell, &mut command, name, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    print::line(text.trim_end()).map(|()| Exit::Ok)
}

/// The JSON schema of configuration files.
fn schema() -> String {
    let served = protocols::protocols().into_iter().fold(Operated::with(Document::default()), Operated::protocol);
    format!("{:#}", served.schema())
}

fn kubernetes(arguments: &KubernetesArguments) -> Result<String, Failure> {
    let path = &arguments.plan;
    // A plan that is wrong is told here, and not in a log of the cluster.
    let words = ["sockdrawer", "load", "--plan"].map(Into::into).into_iter().chain([path.clone().into_os_string()]);
    usage::parse(words)?;
    let plan =
        fs::read_to_string(path).map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", path.display())))?;
    let indented: Vec<String> = plan.lines().map(|line| format!("    {line}").trim_end().to_owned()).collect();
    let text = KUBERNETES
        .replace("AGENTS", &arguments.agents.to_string())
        .replace("NAME", &arguments.name)
        .replace("IMAGE", &arguments.image);
    Ok(text.replace("PLAN", &indented.join("\n")))
}
