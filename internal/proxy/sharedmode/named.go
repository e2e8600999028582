package sharedmode

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// applicationFields has the positions of the fields of an Application that make the repo-server fetch something from the
// hub's network, read files outside the repository, or run something. They come from the spoke. So a value that leads
// outside the repository is allowed only if the hub's Application has the same value.
type applicationFields struct {
	application path   // its name
	names       []path // replace variables ($NAME)
	filledIn    []path // replace variables too, but are not names
	files       []path // within the repository, or an address; separated by commas
	folders     []path // the same, but an address needs no scheme
	parameters  []path // receive the content of a file
	plugins     []path
	code        []path // JsonnetVar: a program if its third field is true
}

var ofManifests = applicationFields{
	application: path{5},
	names:       []path{{5}, {8}, {25}},
	filledIn:    []path{{2}, {10, 2}, {10, 4}},
	files:       []path{{10, 7, 1}, {10, 7, 5, 2}, {10, 8, 12, 1}},
	folders:     []path{{10, 8, 13}},
	parameters:  []path{{10, 7, 5, 1}},
	plugins: []path{{10, 11, 1}, {10, 11, 2, 1}, {10, 11, 2, 2}, {10, 11, 3, 1}, {10, 11, 3, 5},
		{10, 11, 3, 3, 1, 1}, {10, 11, 3, 3, 1, 2}, {10, 11, 3, 4, 1}},
	code: []path{{10, 10, 2, 1}, {10, 10, 2, 2}},
}

// specialChars cannot be in the name of a file: addresses have colons, and Helm splits at commas and quotes.
const specialChars = ":,\"\n\r"

// checkNamed returns a gRPC status if a value of an Application is denied.
func (r *Rules) checkNamed(ctx context.Context, n *applicationFields, request []byte) error {
	if n == nil {
		return nil
	}
	for _, p := range n.names {
		if name := last(request, p); strings.ContainsFunc(name, notInNames) {
			return status.Errorf(codes.InvalidArgument, "%.100q is not a name", name)
		}
	}
	suspicious := false // a variable can have special characters
	for _, p := range n.filledIn {
		each(request, p, func(v []byte) { suspicious = suspicious || bytes.ContainsAny(v, specialChars) })
	}
	const file, plugin, code = "a file that is not within the repository", "a plugin or its setting", "a program"
	var wants []want // usually none
	look := func(paths []path, what string, is func(v string) bool) {
		for _, p := range paths {
			each(request, p, func(v []byte) {
				if len(v) > 0 && is(string(v)) {
					wants = append(wants, want{what, string(v)})
				}
			})
		}
	}
	outside := func(v string) bool {
		return strings.ContainsAny(v, specialChars) || strings.Contains(v, "$") && (suspicious || strings.Contains(v, "REPO_URL"))
	}
	look(n.files, file, outside)
	look(n.folders, file, func(v string) bool { return outside(v) || beginsWithHost(v) })
	look(n.parameters, file, func(v string) bool { return strings.ContainsAny(v, "=,") })
	look(n.plugins, plugin, func(string) bool { return true })
	for _, p := range n.code {
		each(request, p, func(variable []byte) {
			if isTrue(variable, path{3}) {
				each(variable, path{2}, func(v []byte) { wants = append(wants, want{code, string(v)}) })
			}
		})
	}
	if len(wants) == 0 {
		return nil
	}
	application := last(request, n.application)
	allowed, err := r.Application(ctx, application)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	for _, w := range wants {
		if !allowed[w.text] {
			return status.Errorf(codes.PermissionDenied,
				"%s, %.200q, must be in the hub's own Application: the hub's repo-server uses nothing else for an agent, and Application %q does not have it", w.what, w.text, application)
		}
	}
	return nil
}

// want is a value that the hub's Application must have.
type want struct{ what, text string }

func notInNames(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// beginsWithHost reports whether kustomize can interpret a directory as a remote repository.
func beginsWithHost(folder string) bool {
	first, _, more := strings.Cut(folder, "/")
	return more && (strings.Contains(strings.Trim(first, "."), ".") || strings.Contains(first, "@"))
}

// checkSourceTypes returns an error if a request enables a source type that the hub has disabled.
func (r *Rules) checkSourceTypes(p path, request []byte) error {
	if p == nil || len(r.SourceTypesOff) == 0 {
		return nil
	}
	off := map[string]bool{}
	each(request, p, func(entry []byte) { off[last(entry, path{1})] = !isTrue(entry, path{2}) })
	for kind, setting := range r.SourceTypesOff {
		if !off[kind] {
			return fmt.Errorf("%s is false in the hub's argocd-cm: set the same on the agent's cluster", setting)
		}
	}
	return nil
}
