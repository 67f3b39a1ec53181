{{- /* The test of `helm test`. */ -}}

{{- /* The time limit of the Job, in seconds: also for pulling the image, and for cancelling the job at the end. */ -}}
{{- define "slurm.testDeadline" -}}
{{- add (int64 .Values.test.timeout) 120 -}}
{{- end -}}

{{- /* The pod that submits a job. Takes `root` and `name`. */ -}}
{{- define "slurm.testPodSpec" -}}
{{- $root := .root -}}
{{- $test := $root.Values.test -}}
{{- $job := dict "name" .name "script" "#!/bin/sh\necho \"$SLURMD_NODENAME\"\n" "time_limit" (dict "set" true "number" 1) -}}
{{- $_ := set $job "environment" (list "PATH=/bin:/usr/bin") -}}
{{- $_ = set $job "current_working_directory" "/tmp" -}}
{{- $_ = set $job "standard_output" "/dev/null" -}}
{{- with $test.partition }}{{ $_ = set $job "partition" . }}{{ end -}}
restartPolicy: Never
automountServiceAccountToken: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: test
    image: {{ include "slurm.image" (dict "root" $root "image" (default $root.Values.controller.logfile.image $test.image)) | quote }}
    imagePullPolicy: {{ $root.Values.imagePullPolicy }}
    command:
      - sh
      - -c
      - |
        {{- $root.Files.Get "files/test-job.sh" | nindent 8 }}
    env:
      - name: HOST
        value: {{ include "slurm.fullname" $root }}-restapi
      - name: PORT
        value: {{ default 6820 (default dict $root.Values.restapi.service).port | int64 | quote }}
      - name: TOKEN_FILE
        value: /var/run/secrets/slurm/SLURM_JWT
      - name: TIMEOUT
        value: {{ int64 $test.timeout | quote }}
      - name: JOB
        value: {{ dict "job" $job | toJson | quote }}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - name: token
        mountPath: /var/run/secrets/slurm
        readOnly: true
volumes:
  - name: token
    secret:
      secretName: {{ .name }}-token
{{- end -}}
