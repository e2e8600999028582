package cli

import (
	"fmt"
	"regexp"
	"strings"
)

const redacted = "REDACTED"

// secretTexts match secrets in any text. They are the last of several protections: objects are reduced to listed fields,
// and Secrets are never read.
var secretTexts = []struct {
	expr *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), redacted},
	{regexp.MustCompile(`join://[^\s"']+`), "join://" + redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + redacted},
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + redacted + "@"},
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credentials?)\\?["']?\s*[:=]\s*)(?:\\?"(?:[^"\\\n]|\\[^"])*\\?"|'[^'\n]*'|[^\s"',;}]+)`), "${1}" + redacted},
}

// redactText removes what looks like a secret.
func redactText(text string) string {
	for _, one := range secretTexts {
		text = one.expr.ReplaceAllString(text, one.with)
	}
	return text
}

var secretName = regexp.MustCompile(`(?i)password|passwd|passphrase|secret|token|key|creds|credential|auth|header|cookie`)

// redactSetting returns the value of a setting, if its name does not say that it may be a secret.
func redactSetting(name, value string) string {
	if value != "" && secretName.MatchString(name) {
		return fmt.Sprintf("%s (%d bytes)", redacted, len(value))
	}
	return redactText(value)
}

// redactArguments redacts the values of flags.
func redactArguments(args []any) []any {
	out := make([]any, len(args))
	secret := false
	for i, arg := range args {
		text := fmt.Sprint(arg)
		name, value, hasValue := strings.Cut(text, "=")
		switch {
		case strings.HasPrefix(text, "-") && hasValue:
			out[i], secret = name+"="+redactSetting(name, value), false
		case strings.HasPrefix(text, "-"):
			out[i], secret = text, secretName.MatchString(text)
		case secret:
			out[i], secret = redacted, false
		default:
			out[i] = redactText(text)
		}
	}
	return out
}

// fieldMask selects fields of an object. A nil mask selects everything below.
type fieldMask map[string]fieldMask

// mask returns a mask of paths such as "spec.source.path". Lists are passed through.
func mask(paths ...string) fieldMask {
	root := fieldMask{}
	for _, path := range paths {
		at := root
		parts := strings.Split(path, ".")
		for i, part := range parts {
			if i == len(parts)-1 {
				at[part] = nil
				break
			}
			if at[part] == nil {
				at[part] = fieldMask{}
			}
			at = at[part]
		}
	}
	return root
}

// apply returns the selected fields of a value.
func (m fieldMask) apply(value any) any {
	if m == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, below := range m {
			if inner, there := v[key]; there {
				out[key] = below.apply(inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.apply(v[i])
		}
		return out
	}
	return nil // a scalar where fields are expected
}

// redactObject reduces an object to its usual metadata and the fields of a mask. Of annotations and of the data of
// ConfigMaps, it keeps the names. Environment variables and arguments of containers are redacted by name.
func redactObject(object map[string]any, fields fieldMask) map[string]any {
	out, _ := fields.apply(object).(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	meta, _ := mask("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "finalizers", "labels", "ownerReferences").apply(object["metadata"]).(map[string]any)
	if metadata, _ := object["metadata"].(map[string]any); metadata["annotations"] != nil {
		meta["annotations"] = sizes(metadata["annotations"])
	}
	out["metadata"] = meta
	if data, there := object["data"]; there && out["kind"] == "ConfigMap" {
		out["data"] = sizes(data)
	}
	redactContainers(out)
	return out
}

// sizes replaces values with their length.
func sizes(values any) map[string]any {
	out := map[string]any{}
	all, _ := values.(map[string]any)
	for name, value := range all {
		out[name] = fmt.Sprintf("%d bytes", len(fmt.Sprint(value)))
	}
	return out
}

// redactContainers redacts the settings of all containers below a value.
func redactContainers(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			list, isList := inner.([]any)
			switch {
			case isList && (key == "args" || key == "command"):
				v[key] = redactArguments(list)
			case isList && key == "env":
				for _, one := range list {
					if variable, ok := one.(map[string]any); ok && variable["value"] != nil {
						variable["value"] = redactSetting(fmt.Sprint(variable["name"]), fmt.Sprint(variable["value"]))
					}
				}
			default:
				redactContainers(inner)
			}
		}
	case []any:
		for _, inner := range v {
			redactContainers(inner)
		}
	}
}
