// Package execution holds one run of a program: what it is started with, what makes two starts the same, and its states.
package execution
