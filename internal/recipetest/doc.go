// Package recipetest runs the tests of a recipe on every store, in one process
// and over several, with links to the store that can be cut.
//
// To have all recipes tested on another store, add a line to the kinds here.
package recipetest
