// Package activity holds the Functions that programs run: the port that adapters implement, the registry, and what keeps
// secrets out of the errors of Functions.
package activity
