//go:build tools

// Package tools names the program that `.ci/run` installs: h2spec, with dependencies that Go 1.19 of
// Debian 12 compiles.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
