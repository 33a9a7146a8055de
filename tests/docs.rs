//! The documentation against the program: configurations in it load, command lines parse, nothing of the language or the
//! command line is left out, links lead somewhere.

#[path = "docs/commands.rs"]
mod commands;
#[path = "docs/configurations.rs"]
mod configurations;
#[path = "docs/library.rs"]
mod library;
#[path = "docs/links.rs"]
mod links;
#[path = "docs/markdown.rs"]
mod markdown;
#[path = "docs/models.rs"]
mod models;
#[path = "docs/options.rs"]
mod options;
