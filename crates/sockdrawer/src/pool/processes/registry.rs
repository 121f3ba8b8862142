//! How a program that is started again as a helper knows what to build.

use super::helper;
use crate::behaviour::{Behaviour, Build};
use crate::exec;
use crate::protocol::Recipe;
use crate::sync::OnceLock;
use crate::sys::process;

static RECIPES: OnceLock<Vec<(String, Build)>> = OnceLock::new();

/// Lets this program run pools in processes of their own ([`Model::Fork`](crate::Model::Fork),
/// [`Model::Prefork`](crate::Model::Prefork)). Call it first of all in `main`, before arguments are parsed and threads started: a
/// helper is this program started again, and this call is where it turns into a helper and never returns. In the program itself it
/// returns at once.
///
/// `recipes` name what a helper may be asked to build, see [`Service::recipe`](crate::Service::recipe).
///
/// ```no_run
/// # use sockdrawer::{Context, Input, Peer, Protocol, Recipe, Service, Step};
/// struct Echo;
/// impl Service for Echo {
///     type Protocol = Echo;
///     fn open(&self, _peer: &Peer) -> Echo {
///         Echo
///     }
///     fn recipe(&self) -> Option<Recipe> {
///         Some(Recipe { name: "echo".to_owned(), options: Vec::new() })
///     }
/// }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// fn main() {
///     sockdrawer::processes(&[("echo", |_options| Ok(Echo.into()))]);
///     // The program begins here.
/// }
/// ```
pub fn processes(recipes: &[(&str, Build)]) {
    // A second call adds nothing: a helper has long been diverted by the first.
    let _ = RECIPES.set(recipes.iter().map(|(name, build)| ((*name).to_owned(), *build)).collect());
    if let Some(end) = process::helper_end() {
        helper::run(end);
    }
}

/// Whether a helper of this program could build it.
pub(super) fn knows(recipe: &Recipe) -> bool {
    recipe.name == exec::NAME || find(recipe).is_some()
}

/// Whether [`processes`] was called: a program that does not call it would start its own `main` again and again.
pub(super) fn is_ready() -> bool {
    RECIPES.get().is_some()
}

fn find(recipe: &Recipe) -> Option<Build> {
    RECIPES.get()?.iter().find(|(name, _)| *name == recipe.name).map(|(_, build)| *build)
}

/// Builds what the recipe says. Runs user code.
pub(super) fn build(recipe: &Recipe) -> Result<Behaviour, String> {
    if recipe.name == exec::NAME {
        return exec::from_options(&recipe.options).ok_or_else(|| "the recipe of a program names none".to_owned());
    }
    let build = find(recipe).ok_or_else(|| format!("no recipe is named `{}`", recipe.name))?;
    build(&recipe.options).map_err(|error| error.to_string())
}
