// toolkit runs exporter-toolkit itself. Tests compare crates/web-config with it.
//
//	toolkit testdata           prints the folder of exporter-toolkit's own configuration files, in the Go module
//	toolkit check FILE...      prints a line per file: "ok", or the error
//	toolkit serve FILE         serves "up 1" on a free port of 127.0.0.1 by the rules of FILE, and prints the port
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
)

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "testdata":
		// Find the Go module through the source file of one of its functions, which the compiler has recorded.
		function := runtime.FuncForPC(reflect.ValueOf(web.Validate).Pointer())
		source, _ := function.FileLine(function.Entry())
		fmt.Println(filepath.Join(filepath.Dir(source), "testdata"))
		return nil
	case len(arguments) > 1 && arguments[0] == "check":
		for _, file := range arguments[1:] {
			result := "ok"
			if err := web.Validate(file); err != nil {
				result = strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Println(result)
		}
		return nil
	case len(arguments) == 2 && arguments[0] == "serve":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		handler := http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "up 1") })
		flags := web.FlagConfig{WebConfigFile: &arguments[1]}
		return web.Serve(listener, &http.Server{Handler: handler}, &flags, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	return errors.New("usage: toolkit testdata | check FILE... | serve FILE")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
