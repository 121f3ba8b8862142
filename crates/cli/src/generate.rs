//! `sockdrawer generate`: files for other programs that only this one prints.

mod reference;
#[cfg(test)]
mod tests;

use crate::arguments::{Generated, KubernetesArguments};
use crate::outcome::{Exit, Failure};
use crate::{print, usage};
use std::fs;

/// Manifests of a run and its agents. The names in capitals are replaced.
const KUBERNETES: &str = include_str!("generate/k8s.yaml");

pub(crate) fn run(asked: &Generated) -> Result<Exit, Failure> {
    let text = match asked {
        Generated::K8s(arguments) => kubernetes(arguments)?,
        Generated::Reference => reference::page(),
    };
    print::line(text.trim_end()).map(|()| Exit::Ok)
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
