package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// initialise is process 1 of a namespace: when the command has ended, so has everything in it.
func initialise(command []string) error {
	if len(command) == 0 {
		return errors.New("a command is needed")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	files := []uintptr{0, 1, 2}
	for descriptor := uintptr(3); descriptor < 16; descriptor++ {
		if flags, _, failed := syscall.Syscall(syscall.SYS_FCNTL, descriptor, syscall.F_GETFD, 0); failed == 0 && flags&syscall.FD_CLOEXEC == 0 {
			for uintptr(len(files)) < descriptor {
				files = append(files, ^uintptr(0))
			}
			files = append(files, descriptor)
		}
	}
	child, err := syscall.ForkExec(path, command, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid == child || err != nil {
			os.Exit(status.ExitStatus())
		}
	}
}

// pause waits for the signal to end and collects orphans until then.
func pause(_ []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// web answers every path with the name of its pod; with -config it needs a file to start, as real servers do.
func web(arguments []string) error {
	flags := flag.NewFlagSet("web", flag.ExitOnError)
	port := flags.Int("port", 8080, "port to listen on")
	config := flags.String("config", "", "file that must exist")
	upstream := flags.String("upstream", "", "URL whose answer is passed on at /")
	grow := flags.Int("memory-mb", 0, "memory to take, MiB")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *config != "" {
		if _, err := os.ReadFile(*config); err != nil {
			return err
		}
	}
	taken := make([]byte, *grow<<20)
	for i := range taken {
		taken[i] = 1
	}
	host, _ := os.Hostname()
	client := http.Client{Timeout: 3 * time.Second}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok", len(taken)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if *upstream == "" {
			fmt.Fprintln(w, host)
			return
		}
		answer, err := client.Get(*upstream)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	})
	server := http.Server{Addr: ":" + strconv.Itoa(*port), Handler: mux}
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ending
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// wget prints the answer to one request; it fails unless the answer is 200.
func wget(arguments []string) error {
	flags := flag.NewFlagSet("wget", flag.ExitOnError)
	flags.Bool("q", false, "print nothing but the answer")
	seconds := flags.Float64("T", 5, "time-out in seconds")
	flags.String("O", "-", "where to write; always standard output")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one URL is needed")
	}
	client := http.Client{Timeout: time.Duration(*seconds * float64(time.Second))}
	answer, err := client.Get(flags.Arg(0))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("server returned error: %s", answer.Status)
	}
	return nil
}

// late is how long an answer waits in the relay, in nanoseconds.
var late atomic.Int64

// answer passes what the server says on to the client, late when it was asked to be.
func answer(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		read, err := server.Read(buffer)
		if read > 0 {
			time.Sleep(time.Duration(late.Load()))
			if _, err := client.Write(buffer[:read]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// relay passes every connection that the inherited listening socket accepts on to an address of this network. From SIGUSR1 on
// every answer is half a second late, until SIGUSR2.
func relay(arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("FD and ADDRESS are needed")
	}
	descriptor, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(uintptr(descriptor), "listener"))
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for received := range signals {
			if received == syscall.SIGUSR1 {
				late.Store(int64(500 * time.Millisecond))
			} else {
				late.Store(0)
			}
		}
	}()
	for {
		inner, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer inner.Close()
			outer, err := net.DialTimeout("tcp", arguments[1], 5*time.Second)
			if err != nil {
				return
			}
			defer outer.Close()
			done := make(chan struct{}, 2)
			go func() {
				io.Copy(outer, inner)
				done <- struct{}{}
			}()
			go func() {
				answer(inner, outer)
				done <- struct{}{}
			}()
			<-done
		}()
	}
}
