package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
)

// logLevels are the minimum levels of the log: one for all components, and others for some. A component is a package
// directly below internal/, or "library" for code of others.
type logLevels struct {
	all        slog.Level
	components map[string]slog.Level
	written    string
}

var levels = map[string]slog.Level{
	"trace": slog.LevelDebug - 4,
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// library is the component of code outside this module.
const library = "library"

// logComponents are the components that log.
var logComponents = []string{"agent", "appevents", "audit", "fleet", "hublease", "identity", "kube", library, "live", "principal", "proxy", "search", "tasks", "trace", "transport", "upgrade"}

func (l *logLevels) value() pflag.Value {
	*l = logLevels{all: slog.LevelInfo, written: "info"}
	return &value[logLevels]{l, "LEVEL[,COMPONENT=LEVEL]", parseLogLevels, func(l logLevels) string { return l.written }}
}

func parseLogLevels(s string) (logLevels, error) {
	l := logLevels{all: slog.LevelInfo, written: s}
	for part := range strings.SplitSeq(s, ",") {
		component, name, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			component, name = "", component
		}
		level, ok := levels[name]
		switch {
		case !ok:
			return l, fmt.Errorf("%q: a level must be one of trace, debug, info, warn, error", part)
		case !named:
			l.all = level
		case component == "":
			return l, fmt.Errorf("%q: must be COMPONENT=LEVEL", part)
		default:
			if l.components == nil {
				l.components = map[string]slog.Level{}
			}
			l.components[component] = level
		}
	}
	return l, nil
}

// unknown returns the components that never log, sorted.
func (l *logLevels) unknown() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.components)), func(c string) bool { return slices.Contains(logComponents, c) })
}

// lowest returns the lowest level of any component.
func (l *logLevels) lowest() slog.Level {
	lowest := l.all
	for _, level := range l.components {
		lowest = min(lowest, level)
	}
	return lowest
}

// componentHandler passes on the records that the level of their component permits.
type componentHandler struct {
	slog.Handler
	levels *logLevels
	names  *sync.Map // component by program counter; as many as there are log statements
}

func (h *componentHandler) Handle(ctx context.Context, r slog.Record) error {
	level, ok := h.levels.components[h.component(r.PC)]
	if !ok {
		level = h.levels.all
	}
	if r.Level < level {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *componentHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &componentHandler{h.Handler.WithAttrs(attrs), h.levels, h.names}
}

func (h *componentHandler) WithGroup(name string) slog.Handler {
	return &componentHandler{h.Handler.WithGroup(name), h.levels, h.names}
}

func (h *componentHandler) component(pc uintptr) string {
	if name, ok := h.names.Load(pc); ok {
		return name.(string)
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := componentOf(frame.Function)
	h.names.Store(pc, name)
	return name
}

// componentOf returns the component of a function, such as github.com/…/internal/transport/grpc.(*Server).serve.
func componentOf(function string) string {
	_, path, ok := strings.Cut(function, "/argocd-agent/internal/")
	if !ok {
		return library
	}
	end := strings.IndexAny(path, "/.")
	if end < 0 {
		return library
	}
	return path[:end]
}
